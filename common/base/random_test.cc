// SPDX-License-Identifier: Apache-2.0
#include "common/base/random.h"

#include <array>
#include <cstdint>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

struct KnownAnswer {
  std::array<uint32_t, 4> counter;
  std::array<uint32_t, 2> key;
  std::array<uint32_t, 4> answer;
};

// The lines "philox4x32 10" of Random123's tests/kat_vectors.
constexpr KnownAnswer kKnownAnswers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    // The digits of pi.
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox4x32Test, KnownAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    EXPECT_EQ(Philox4x32(known.counter, known.key), known.answer);
  }
}

TEST(Philox4x32Test, EveryWordOfCounterAndKeyMatters) {
  const std::array<uint32_t, 4> base = Philox4x32({1, 2, 3, 4}, {5, 6});
  EXPECT_NE(Philox4x32({0, 2, 3, 4}, {5, 6}), base);
  EXPECT_NE(Philox4x32({1, 0, 3, 4}, {5, 6}), base);
  EXPECT_NE(Philox4x32({1, 2, 0, 4}, {5, 6}), base);
  EXPECT_NE(Philox4x32({1, 2, 3, 0}, {5, 6}), base);
  EXPECT_NE(Philox4x32({1, 2, 3, 4}, {0, 6}), base);
  EXPECT_NE(Philox4x32({1, 2, 3, 4}, {5, 0}), base);
}

}  // namespace
}  // namespace holdfast
