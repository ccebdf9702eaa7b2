// SPDX-License-Identifier: Apache-2.0

// Which positions of the training stream (example_order.h) make up a batch.
//
// The stream, over n examples, is cut into consecutive batches of B examples:
// batch k covers [k B, (k + 1) B). How a job's examples are assigned determines
// which worker computes a batch:
//
//   by step:    a step has S seats, and seat i of step t has batch t S + i. So
//               what a step sees depends only on S B: 2 workers x 100 and 1
//               worker x 200 train on the same examples, in the same order.
//   by ticket:  ticket k has batch k, wherever and whenever it is computed.
//
// An epoch may end within a batch; no example is left out at its end. With
// short last batches, every epoch has its own batches and steps:
//
//   by ticket:  an epoch has ceil(n / B) batches, the last of which has what is
//               left.
//   by step:    an epoch has ceil(n / (S B)) steps. Of the last one's seats,
//               one may be short and those after it are empty.
#ifndef HOLDFAST_COMMON_JOB_BATCH_RANGES_H_
#define HOLDFAST_COMMON_JOB_BATCH_RANGES_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace holdfast {

// Positions [begin, begin + count) of the training stream.
struct PositionRange {
  int64_t begin = 0;
  // 0 for an empty seat, otherwise at most the batch size.
  int64_t count = 0;
};

// Immutable, thus thread-safe.
class BatchRanges {
 public:
  // All numbers must be at least 1.
  struct Options {
    // n above.
    int64_t num_examples = 1;
    // B above.
    int64_t batch_size = 1;
    // S above; used only by step.
    int64_t seats_per_step = 1;
    bool short_last_batch = false;
  };

  explicit BatchRanges(const Options& options) : options_(options) {}

  // The batch of `seat`, from 0 to S - 1, in `step`.
  // Errors: OUT_OF_RANGE when its end passes 2^63 - 1.
  absl::StatusOr<PositionRange> OfSeat(uint64_t step, int64_t seat) const;

  // The batch of the ticket with this index.
  // Errors: OUT_OF_RANGE when its end passes 2^63 - 1.
  absl::StatusOr<PositionRange> OfTicket(uint64_t index) const;

 private:
  const Options options_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_BATCH_RANGES_H_
