// SPDX-License-Identifier: Apache-2.0
#include "common/job/loss_watch.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

TEST(LossWatchTest, WarnsOnceOfALossThatExplodes) {
  LossWatch watch;
  // The median of the first five is 2.
  for (const double loss : {3., 1., 500., 2., 1.}) {
    EXPECT_EQ(watch.Add(loss), "");
  }
  EXPECT_EQ(watch.Add(200), "");
  EXPECT_THAT(watch.Add(201),
              HasSubstr("the loss is 201, over 100 times the initial 2:"));
  EXPECT_EQ(watch.Add(1e9), "");
}

TEST(LossWatchTest, WarnsOfALossThatIsNotFinite) {
  for (const double loss : {std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()}) {
    LossWatch watch(/*losses_per_report=*/20);
    EXPECT_EQ(watch.Add(1), "");
    EXPECT_THAT(watch.Add(loss), HasSubstr("not a finite number"));
    EXPECT_EQ(watch.Add(loss), "");
  }
}

// One bad batch among 20 is not an explosion.
TEST(LossWatchTest, ReportsAreMeans) {
  LossWatch watch(/*losses_per_report=*/20);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(watch.Add(1), "");
  EXPECT_EQ(watch.Add(1900), "");
  for (int i = 1; i < 20; ++i) EXPECT_EQ(watch.Add(1), "");
  EXPECT_EQ(watch.Add(2000), "");
  for (int i = 1; i < 19; ++i) EXPECT_EQ(watch.Add(1), "");
  EXPECT_THAT(watch.Add(1), HasSubstr("over 100 times the initial 1:"));
}

// A model that fits perfectly gives no scale for large losses.
TEST(LossWatchTest, NothingIsSaidWithoutAScale) {
  LossWatch watch;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(watch.Add(0), "");
  EXPECT_EQ(watch.Add(1), "");
}

}  // namespace
}  // namespace holdfast
