// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/recent_rates.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

class RecentRatesTest : public ::testing::Test {
 protected:
  // A second with as many steps, of 10 examples each.
  void Second(uint64_t steps) {
    now_ += absl::Seconds(1);
    position_.steps += steps;
    position_.examples += 10 * steps;
    rates_.Look(now_, position_);
  }
  double StepsPerSecond() const {
    return rates_.At(now_, position_).steps_per_second;
  }

  absl::Time now_ = absl::UnixEpoch();
  RecentRates::Position position_;
  RecentRates rates_;
};

TEST_F(RecentRatesTest, NothingBeforeTraining) {
  Second(5);
  EXPECT_EQ(StepsPerSecond(), 0);
  rates_.Begin(now_, position_);
  EXPECT_EQ(StepsPerSecond(), 0) << "no time has passed";
}

TEST_F(RecentRatesTest, OverAllOfAShortTime) {
  position_ = {100, 1000};
  rates_.Begin(now_, position_);
  Second(6);
  Second(2);
  EXPECT_DOUBLE_EQ(StepsPerSecond(), 4);
  EXPECT_DOUBLE_EQ(rates_.At(now_, position_).examples_per_second, 40);
  // Not only at the times of samples: 8 steps in 4 s.
  EXPECT_DOUBLE_EQ(
      rates_.At(now_ + absl::Seconds(2), position_).steps_per_second, 2);
}

TEST_F(RecentRatesTest, OverTheLastTenSeconds) {
  rates_.Begin(now_, position_);
  for (int i = 0; i < 100; ++i) Second(50);
  for (int i = 0; i < 9; ++i) Second(1);
  EXPECT_DOUBLE_EQ(StepsPerSecond(), (50 + 9 * 1) / 10.0);
  Second(1);
  EXPECT_DOUBLE_EQ(StepsPerSecond(), 1);
  // A job that makes no progress.
  for (int i = 0; i < 10; ++i) Second(0);
  EXPECT_EQ(StepsPerSecond(), 0);
}

TEST_F(RecentRatesTest, StayAtTheEnd) {
  rates_.Begin(now_, position_);
  Second(4);
  rates_.End(now_, position_);
  for (int i = 0; i < 20; ++i) Second(0);
  EXPECT_DOUBLE_EQ(StepsPerSecond(), 4);
}

TEST_F(RecentRatesTest, AGenerationBeginsAnew) {
  rates_.Begin(now_, position_);
  for (int i = 0; i < 5; ++i) Second(100);
  rates_.Reset();
  EXPECT_EQ(StepsPerSecond(), 0);
  position_ = {200, 2000};
  now_ += absl::Seconds(30);
  rates_.Begin(now_, position_);
  Second(3);
  EXPECT_DOUBLE_EQ(StepsPerSecond(), 3);
}

}  // namespace
}  // namespace holdfast
