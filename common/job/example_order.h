// SPDX-License-Identifier: Apache-2.0

// The order in which training visits the examples.
//
// The training stream is the data set repeated: position p is in epoch p / n,
// and every epoch visits each of the n examples once, in an order that depends
// only on (seed, epoch). batch_ranges.h defines which positions make up a
// batch.
#ifndef HOLDFAST_COMMON_JOB_EXAMPLE_ORDER_H_
#define HOLDFAST_COMMON_JOB_EXAMPLE_ORDER_H_

#include <array>
#include <cstdint>

namespace holdfast {

// How an epoch's order differs from the order of the data.
struct Shuffle {
  enum class Kind {
    // Any example may be at any position.
    kFull,
    // The data are cut into blocks of `block` examples; the last block may be
    // shorter. Blocks are visited one after another in a random order, and the
    // examples of each block in a random order: reads stay within a block.
    kBlocks,
    // The order of the data, in every epoch.
    kNone,
  };
  static constexpr int64_t kDefaultBlock = 4096;

  Kind kind = Kind::kFull;
  // The block size for kBlocks, at least 1. Larger blocks mix better, but reads
  // are spread over larger ranges of the data.
  int64_t block = kDefaultBlock;
};

// The order in which the training stream visits the examples. It uses only
// integers, so it is the same on every machine, and it needs no memory: every
// position costs the same.
//
// A random order is a Feistel network (Luby and Rackoff, "How to construct
// pseudorandom permutations", 1988) on the smallest even number of bits that
// can number the items, with cycle walking (Black and Rogaway, "Ciphers with
// arbitrary finite domains", 2002) for values past the last item. Its round
// keys are Philox4x32 of (seed, epoch), and of the block's number for the order
// within a block.
//
// Immutable, thus thread-safe.
class ExampleOrder {
 public:
  // `num_examples` is at least 1.
  ExampleOrder(uint64_t seed, int64_t num_examples,
               const Shuffle& shuffle = Shuffle());

  // The example at `position` of the stream; `position` must be at least 0.
  int64_t At(int64_t position) const;

  int64_t num_examples() const { return num_examples_; }

 private:
  // The example at position `place` of the epoch, in a kBlocks order.
  int64_t AtInBlocks(uint64_t epoch, int64_t place) const;

  std::array<uint32_t, 2> seed_;
  int64_t num_examples_;
  Shuffle shuffle_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_EXAMPLE_ORDER_H_
