// SPDX-License-Identifier: Apache-2.0
#include "common/job/example_order.h"

#include <algorithm>
#include <utility>

#include "common/base/random.h"

namespace holdfast {
namespace {

// These constants separate the keys from each other and from other uses of
// Philox with the same seed: "orde", "bloc" and "with".
constexpr uint32_t kOfExamples = 0x6f726465;
constexpr uint32_t kOfBlocks = 0x626c6f63;
constexpr uint32_t kWithinBlock = 0x77697468;

constexpr int kRounds = 8;
using RoundKeys = std::array<uint32_t, kRounds>;

std::array<uint32_t, 4> Bits(uint64_t number, uint32_t part, uint32_t purpose,
                             const std::array<uint32_t, 2>& key) {
  return Philox4x32({static_cast<uint32_t>(number),
                     static_cast<uint32_t>(number >> 32), part, purpose},
                    key);
}

RoundKeys KeysOf(uint64_t number, uint32_t purpose,
                 const std::array<uint32_t, 2>& key) {
  RoundKeys keys;
  for (uint32_t part = 0; part * 4 < kRounds; ++part) {
    const std::array<uint32_t, 4> bits = Bits(number, part, purpose, key);
    std::copy(bits.begin(), bits.end(), keys.begin() + part * 4);
  }
  return keys;
}

// The 64-bit finalizer of MurmurHash3 (Appleby): every bit of the result
// depends on every bit of `x`.
uint64_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccd;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53;
  x ^= x >> 33;
  return x;
}

// The item at `x` in the random order of `size` items that `keys` determine.
int64_t Permuted(const RoundKeys& keys, int64_t size, uint64_t x) {
  const uint64_t last = static_cast<uint64_t>(size) - 1;
  int half_bits = 1;
  while (half_bits < 32 && last >> (2 * half_bits) != 0) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  // The network's domain is less than 4 n + 4 values, so few walks are long.
  // The walk ends: it follows a cycle of a permutation, which contains x
  // itself.
  do {
    uint64_t left = x >> half_bits;
    uint64_t right = x & mask;
    for (const uint32_t key : keys) {
      // The key fills the upper half, where it cannot cancel against `right`.
      const uint64_t image = Mix(uint64_t{key} << 32 | right) >> 32;
      left ^= image & mask;
      std::swap(left, right);
    }
    x = left << half_bits | right;
  } while (x > last);
  return static_cast<int64_t>(x);
}

}  // namespace

ExampleOrder::ExampleOrder(uint64_t seed, int64_t num_examples,
                           const Shuffle& shuffle)
    : seed_({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}),
      num_examples_(num_examples),
      shuffle_(shuffle) {}

int64_t ExampleOrder::At(int64_t position) const {
  const uint64_t epoch = position / num_examples_;
  const int64_t place = position % num_examples_;
  switch (shuffle_.kind) {
    case Shuffle::Kind::kNone:
      return place;
    case Shuffle::Kind::kBlocks:
      return AtInBlocks(epoch, place);
    case Shuffle::Kind::kFull:
      break;
  }
  return Permuted(KeysOf(epoch, kOfExamples, seed_), num_examples_, place);
}

int64_t ExampleOrder::AtInBlocks(uint64_t epoch, int64_t place) const {
  const int64_t block = shuffle_.block;
  const int64_t whole_blocks = num_examples_ / block;
  const int64_t short_block = num_examples_ % block;
  // Parts 0 and 1 are those of the round keys.
  const std::array<uint32_t, 4> bits =
      Bits(epoch, /*part=*/2, kOfBlocks, seed_);

  int64_t size = block;
  if (short_block > 0) {
    // The short block comes after a random number of whole blocks, uniformly
    // distributed.
    const uint64_t at = uint64_t{bits[0]} << 32 | bits[1];
    const int64_t begin = static_cast<int64_t>(at % (whole_blocks + 1)) * block;
    if (place >= begin + short_block) {
      place -= short_block;
    } else if (place >= begin) {
      size = short_block;
      place -= begin;
    }
  }
  const bool in_short = size == short_block;
  const int64_t number = in_short ? whole_blocks
                                  : Permuted(KeysOf(epoch, kOfBlocks, seed_),
                                             whole_blocks, place / block);
  const RoundKeys within = KeysOf(number, kWithinBlock, {bits[2], bits[3]});
  return number * block +
         Permuted(within, size, in_short ? place : place % block);
}

}  // namespace holdfast
