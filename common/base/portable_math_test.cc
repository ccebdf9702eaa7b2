// SPDX-License-Identifier: Apache-2.0
#include "common/base/portable_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace holdfast {
namespace {

// The difference in units in the last place of `right` (at least one denormal).
double UlpsApart(double value, double right) {
  const double ulp =
      std::nextafter(std::abs(right), INFINITY) - std::abs(right);
  return std::abs(value - right) / ulp;
}

TEST(PortableMathTest, IsAsTheMathLibrary) {
  for (double x = 1e-9; x < 700; x *= 1.0137) {
    for (const double y : {x, -x}) {
      EXPECT_LE(UlpsApart(PortableExp(y), std::exp(y)), 3) << y;
      EXPECT_LE(UlpsApart(PortableExpm1(y), std::expm1(y)), 4) << y;
    }
  }
  for (double x = 1e-300; x < 1e300; x *= 1.83) {
    EXPECT_LE(UlpsApart(PortableLog(x), std::log(x)), 3) << x;
    EXPECT_LE(UlpsApart(PortableLog1p(x), std::log1p(x)), 3) << x;
  }
  for (double x = 0.5; x < 2; x += 0.00137) {
    EXPECT_LE(UlpsApart(PortableLog(x), std::log(x)), 3) << x;
    EXPECT_LE(UlpsApart(PortableLog1p(-x / 4), std::log1p(-x / 4)), 3) << x;
  }
}

TEST(PortableLogTest, AgreesWithTheCLibrary) {
  for (double x = 0x1p-60; x < 0x1p60; x *= 1.0009765625) {
    const double expected = std::log(x);
    EXPECT_NEAR(PortableLog(x), expected, 4.5e-16 * std::abs(expected)) << x;
  }
  for (double x = 0.9; x < 1.1; x += 0x1p-14) {
    const double expected = std::log(x);
    EXPECT_NEAR(PortableLog(x), expected, 4.5e-16 * std::abs(expected)) << x;
  }
  EXPECT_EQ(PortableLog(1), 0);
}

TEST(PortableMathTest, HasTheEndsOfTheRange) {
  EXPECT_EQ(PortableExp(0), 1);
  EXPECT_EQ(PortableLog(1), 0);
  EXPECT_EQ(PortableLog1p(0), 0);
  EXPECT_EQ(PortableExpm1(0), 0);
  EXPECT_EQ(PortableExp(1000), std::numeric_limits<double>::infinity());
  EXPECT_EQ(PortableExp(-1000), 0);
  EXPECT_TRUE(std::isnan(PortableExp(NAN)));
  EXPECT_FALSE(std::isinf(PortableLog(std::numeric_limits<double>::max())));
}

}  // namespace
}  // namespace holdfast
