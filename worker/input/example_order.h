// Which examples a step is made of.
//
// The training stream is the data set over and over: position p is in epoch
// p / n, and every epoch visits each of the n examples once, in an order of its
// own that follows from (seed, epoch) alone. A step takes the next S * B
// positions, S seats of B examples each: seat i of step t covers
//
//     [(t * S + i) * B, (t * S + i + 1) * B).
//
// So what a step sees depends on S * B only: 2 workers x 100 and 1 worker x 200
// train on the same examples, in the same order. An epoch may end within a
// batch; no example is dropped at its end.
#ifndef HOLDFAST_WORKER_INPUT_EXAMPLE_ORDER_H_
#define HOLDFAST_WORKER_INPUT_EXAMPLE_ORDER_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"

namespace holdfast {

// The order in which the training stream visits the examples. Integers alone,
// so the same on every machine, and without memory: any position costs the
// same.
//
// An epoch's order is a Feistel network (Luby and Rackoff, "How to construct
// pseudorandom permutations", 1988) on the least even number of bits that
// counts the examples, with cycle walking (Black and Rogaway, "Ciphers with
// arbitrary finite domains", 2002) for what lies beyond the last example. Its
// round keys are Philox4x32 of (seed, epoch).
//
// Immutable, thus thread-safe.
class ExampleOrder {
 public:
  // `num_examples` is at least 1.
  ExampleOrder(uint64_t seed, int64_t num_examples);

  // The example at `position`, which is at least 0, of the stream.
  int64_t At(int64_t position) const;

  int64_t num_examples() const { return num_examples_; }

 private:
  static constexpr int kRounds = 8;
  using RoundKeys = std::array<uint32_t, kRounds>;

  RoundKeys KeysOf(uint64_t epoch) const;

  uint64_t seed_;
  int64_t num_examples_;
  // Bits in each half of the network.
  int half_bits_;
};

// The stream position at which the batch of `seat` in `step` begins.
// Errors: OUT_OF_RANGE when it, or the batch's end, passes 2^63 - 1.
absl::StatusOr<int64_t> FirstPosition(uint64_t step, int64_t seats_per_step,
                                      int64_t seat, int64_t batch_size);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_EXAMPLE_ORDER_H_
