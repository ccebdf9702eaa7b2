// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/halves.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace holdfast {
namespace halves {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// The value of a float16, from IEEE 754's definition.
float ValueOfFloat16(uint16_t half) {
  const float sign = half & 0x8000 ? -1.0f : 1.0f;
  const int exponent = half >> 10 & 0x1f;
  const int fraction = half & 0x3ff;
  if (exponent == 31) return fraction == 0 ? sign * kInfinite : kNotANumber;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(HalvesTest, EveryFloat16StaysAsItIs) {
  for (uint32_t half = 0; half <= 0xffff; ++half) {
    const float value = ValueOfFloat16(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(RoundToFloat16(value)));
      EXPECT_TRUE(std::isnan(ValueOfFloat16(ToFloat16(value))));
      continue;
    }
    EXPECT_EQ(BitsOf(RoundToFloat16(value)), BitsOf(value)) << half;
    EXPECT_EQ(ToFloat16(value), half);
  }
}

// For each pair of neighbours: values below, at and above the middle.
TEST(HalvesTest, RoundsToTheNearestFloat16AndOfTwoToTheEvenOne) {
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = ValueOfFloat16(half);
    const float high = ValueOfFloat16(half + 1);
    const float middle = (low + high) / 2;  // exact
    const float even = half % 2 == 0 ? low : high;
    for (const float sign : {1.0f, -1.0f}) {
      EXPECT_EQ(RoundToFloat16(sign * middle), sign * even) << half;
      EXPECT_EQ(RoundToFloat16(sign * std::nextafter(middle, 0.0f)), sign * low)
          << half;
      EXPECT_EQ(RoundToFloat16(sign * std::nextafter(middle, kInfinite)),
                sign * high)
          << half;
    }
  }
}

TEST(HalvesTest, BeyondFloat16IsInfinite) {
  EXPECT_EQ(RoundToFloat16(std::nextafter(65520.0f, 0.0f)), 65504);
  for (const float value : {65520.0f, 1e5f, 1e38f, kInfinite}) {
    EXPECT_EQ(RoundToFloat16(value), kInfinite) << value;
    EXPECT_EQ(RoundToFloat16(-value), -kInfinite) << value;
    EXPECT_EQ(ToFloat16(value), 0x7c00) << value;
    EXPECT_EQ(ToFloat16(-value), 0xfc00) << value;
  }
}

TEST(HalvesTest, BelowFloat16IsZeroOfItsSign) {
  // Half of the smallest, 2^-24, is as close to 0, which is even.
  EXPECT_EQ(BitsOf(RoundToFloat16(-0x1p-25f)), BitsOf(-0.0f));
  EXPECT_EQ(RoundToFloat16(0x1.000002p-25f), 0x1p-24f);
  EXPECT_EQ(ToFloat16(0x1p-26f), 0);
  EXPECT_EQ(ToFloat16(-0x1p-26f), 0x8000);
}

TEST(HalvesTest, Bfloat16) {
  EXPECT_EQ(RoundToBfloat16(1), 1);
  EXPECT_EQ(ToBfloat16(1), 0x3f80);
  EXPECT_EQ(ToBfloat16(-2), 0xc000);
  // 1 + 2^-8 lies between 1 and 1 + 2^-7.
  EXPECT_EQ(RoundToBfloat16(1 + 0x1p-8f), 1);
  EXPECT_EQ(RoundToBfloat16(1 + 0x1p-7f + 0x1p-8f), 1 + 0x1p-6f);
  EXPECT_EQ(RoundToBfloat16(std::nextafter(1 + 0x1p-8f, 2.0f)), 1 + 0x1p-7f);
  EXPECT_NEAR(RoundToBfloat16(1e38f), 1e38f, 1e38f * 0x1p-8f) << "no overflow";
  EXPECT_EQ(RoundToBfloat16(std::numeric_limits<float>::max()), kInfinite);
  EXPECT_EQ(RoundToBfloat16(-kInfinite), -kInfinite);
  EXPECT_TRUE(std::isnan(RoundToBfloat16(kNotANumber)));
  // Rounding alone would turn these into 0.
  EXPECT_TRUE(std::isnan(RoundToBfloat16(FromBits(0xffffffff))));
  EXPECT_TRUE(std::isnan(RoundToBfloat16(FromBits(0x7f800001))));
}

TEST(HalvesTest, HasOneHalfForWhatIsNotANumber) {
  for (const uint32_t bits :
       {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu}) {
    EXPECT_EQ(ToFloat16(FromBits(bits)), 0x7fff) << bits;
    EXPECT_EQ(ToBfloat16(FromBits(bits)), 0x7fff) << bits;
  }
}

TEST(HalvesTest, EveryHalfHasItsValue) {
  for (uint32_t half = 0; half <= 0xffff; ++half) {
    const float value = FromFloat16(half);
    const float expected = ValueOfFloat16(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << half;
    } else {
      EXPECT_EQ(BitsOf(value), BitsOf(expected)) << half;
    }
    // A bfloat16 is the upper half of a float32.
    EXPECT_EQ(BitsOf(FromBfloat16(half)), half << 16);
  }
}

}  // namespace
}  // namespace halves
}  // namespace holdfast
