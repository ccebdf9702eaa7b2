#include "common/example_order.h"

#include <algorithm>
#include <utility>

#include "common/random.h"

namespace holdfast {
namespace {

// Keeps these keys apart from other uses of Philox under one seed ("orde").
constexpr uint32_t kPurpose = 0x6f726465;

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

}  // namespace

ExampleOrder::ExampleOrder(uint64_t seed, int64_t num_examples)
    : seed_(seed), num_examples_(num_examples), half_bits_(1) {
  const uint64_t last = static_cast<uint64_t>(num_examples) - 1;
  while (half_bits_ < 32 && last >> (2 * half_bits_) != 0) ++half_bits_;
}

int64_t ExampleOrder::At(int64_t position) const {
  const RoundKeys keys = KeysOf(position / num_examples_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t x = position % num_examples_;
  // The network's domain is less than 4 n + 4 values, so few walks are long.
  // The walk ends: it follows a cycle of a permutation that x itself lies on.
  do {
    uint64_t left = x >> half_bits_;
    uint64_t right = x & mask;
    for (uint32_t key : keys) {
      // The key fills the upper half, where it cannot cancel against `right`.
      const uint64_t image = Mix(uint64_t{key} << 32 | right) >> 32;
      left ^= image & mask;
      std::swap(left, right);
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(num_examples_));
  return x;
}

ExampleOrder::RoundKeys ExampleOrder::KeysOf(uint64_t epoch) const {
  RoundKeys keys;
  for (uint32_t block = 0; block * 4 < kRounds; ++block) {
    const std::array<uint32_t, 4> bits = Philox4x32(
        {static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32),
         block, kPurpose},
        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    std::copy(bits.begin(), bits.end(), keys.begin() + block * 4);
  }
  return keys;
}

}  // namespace holdfast
