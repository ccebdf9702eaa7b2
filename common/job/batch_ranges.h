// Which positions of the training stream (example_order.h) a batch is made of.
//
// Of n examples, batches of B of them are cut from the stream one after the
// other; batch k covers [k B, (k + 1) B). Who computes it is a matter of how a
// job's examples are assigned:
//
//   by step:    a step has S seats, and seat i of step t has batch t S + i. So
//               what a step sees depends on S B alone: 2 workers x 100 and 1
//               worker x 200 train on the same examples, in the same order.
//   by ticket:  ticket k has batch k, wherever and whenever it is computed.
//
// An epoch may end within a batch; no example is left out at its end. With
// short last batches every epoch has batches, and steps, of its own:
//
//   by ticket:  an epoch has ceil(n / B) batches, of which the last has what is
//               left.
//   by step:    an epoch has ceil(n / (S B)) steps. Of the last one's seats,
//   one
//               may be short and those after it are empty.
#ifndef HOLDFAST_COMMON_JOB_BATCH_RANGES_H_
#define HOLDFAST_COMMON_JOB_BATCH_RANGES_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace holdfast {

// Positions [begin, begin + count) of the training stream.
struct PositionRange {
  int64_t begin = 0;
  // 0 for an empty seat, or else up to the size of a batch.
  int64_t count = 0;
};

// Immutable, thus thread-safe.
class BatchRanges {
 public:
  // All at least 1.
  struct Options {
    // n.
    int64_t num_examples = 1;
    // B.
    int64_t batch_size = 1;
    // S. By step alone.
    int64_t seats_per_step = 1;
    bool short_last_batch = false;
  };

  explicit BatchRanges(const Options& options) : options_(options) {}

  // Of `seat`, from 0 to below S, in `step`.
  // Errors: OUT_OF_RANGE when its end passes 2^63 - 1.
  absl::StatusOr<PositionRange> OfSeat(uint64_t step, int64_t seat) const;

  // Of the ticket with this index.
  // Errors: OUT_OF_RANGE when its end passes 2^63 - 1.
  absl::StatusOr<PositionRange> OfTicket(uint64_t index) const;

 private:
  const Options options_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_BATCH_RANGES_H_
