// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/norm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(AllFiniteTest, FindsWhatIsNot) {
  std::vector<float> values(37, std::numeric_limits<float>::max());
  EXPECT_TRUE(AllFinite(values));
  EXPECT_TRUE(AllFinite({}));
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::vector<float> changed = values;
      changed[i] = bad;
      EXPECT_FALSE(AllFinite(changed)) << bad << " at " << i;
    }
  }
}

TEST(SumOfSquaresTest, IsThatOfAllElements) {
  EXPECT_EQ(SumOfSquares({}), 0);
  EXPECT_EQ(SumOfSquares({-3}), 9);
  // 1^2 + ... + n^2 = n (n + 1) (2 n + 1) / 6, for multiples of eight and
  // others.
  for (const int n : {7, 8, 9, 16, 31}) {
    std::vector<float> values;
    for (int i = 1; i <= n; ++i) values.push_back(i);
    EXPECT_EQ(SumOfSquares(values), n * (n + 1) * (2 * n + 1) / 6) << n;
  }
}

TEST(SumOfSquaresTest, AddsEveryEighthElementInDouble) {
  // Doubles from 2^54 on are multiples of 4: adding up to 2 to 2^54 has no
  // effect. Elements 1 and 9 meet in a partial sum of their own, 1 + 1.5625,
  // before they are added to the sum of elements 0 and 8. In a single sum both
  // would be lost.
  std::vector<float> values(10, 0);
  values[0] = std::ldexp(1.0f, 27);
  values[8] = 1;
  values[1] = 1;
  values[9] = 1.25f;
  EXPECT_EQ(SumOfSquares(values), std::ldexp(1.0, 54) + 4);
  // The square of the greatest float is 1.2e77, far above what a float holds.
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(SumOfSquares({most}), double{most} * most);
}

TEST(ClipFactorTest, BringsTheNormDownToTheLimit) {
  EXPECT_EQ(ClipFactor(0, 2), 1);
  EXPECT_EQ(ClipFactor(2, 2), 1);
  EXPECT_EQ(ClipFactor(8, 2), 0.25f);
  EXPECT_EQ(ClipFactor(3, 2), static_cast<float>(2.0 / 3.0));
}

}  // namespace
}  // namespace holdfast
