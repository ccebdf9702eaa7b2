// The order in which training visits the examples.
//
// The training stream is the data set over and over: position p is in epoch
// p / n, and every epoch visits each of the n examples once, in an order that
// follows from (seed, epoch) alone. Which positions a batch is made of is told
// in batch_ranges.h.
#ifndef HOLDFAST_COMMON_JOB_EXAMPLE_ORDER_H_
#define HOLDFAST_COMMON_JOB_EXAMPLE_ORDER_H_

#include <array>
#include <cstdint>

namespace holdfast {

// How far the order of an epoch is from that of the data.
struct Shuffle {
  enum class Kind {
    // Any example may be anywhere.
    kFull,
    // The data are cut into blocks of `block` examples, of which the last may
    // be shorter. Blocks are visited one after the other in a random order, and
    // in each its examples in a random order: reads stay within a block.
    kBlocks,
    // As the data are, in each epoch.
    kNone,
  };
  static constexpr int64_t kDefaultBlock = 4096;

  Kind kind = Kind::kFull;
  // Of kBlocks, at least 1. Larger blocks mix better, and are read from larger
  // ranges of the data.
  int64_t block = kDefaultBlock;
};

// The order in which the training stream visits the examples. Integers alone,
// so the same on every machine, and without memory: any position costs the
// same.
//
// What is in random order is a Feistel network (Luby and Rackoff, "How to
// construct pseudorandom permutations", 1988) on the least even number of bits
// that counts the things in order, with cycle walking (Black and Rogaway,
// "Ciphers with arbitrary finite domains", 2002) for what lies beyond the last.
// Its round keys are Philox4x32 of (seed, epoch), and for the inside of a block
// of the block's number too.
//
// Immutable, thus thread-safe.
class ExampleOrder {
 public:
  // `num_examples` is at least 1.
  ExampleOrder(uint64_t seed, int64_t num_examples,
               const Shuffle& shuffle = Shuffle());

  // The example at `position`, which is at least 0, of the stream.
  int64_t At(int64_t position) const;

  int64_t num_examples() const { return num_examples_; }

 private:
  // Of kBlocks, at `place` of the epoch.
  int64_t AtInBlocks(uint64_t epoch, int64_t place) const;

  std::array<uint32_t, 2> seed_;
  int64_t num_examples_;
  Shuffle shuffle_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_EXAMPLE_ORDER_H_
