// The order in which training visits the examples.
//
// The training stream is the data set over and over: position p is in epoch
// p / n, and every epoch visits each of the n examples once, in an order of its
// own that follows from (seed, epoch) alone. Which positions a batch is made of
// is told in batch_ranges.h.
#ifndef HOLDFAST_COMMON_EXAMPLE_ORDER_H_
#define HOLDFAST_COMMON_EXAMPLE_ORDER_H_

#include <array>
#include <cstdint>

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

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_EXAMPLE_ORDER_H_
