#include "ps_server/coordinator/step_timer.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(DurationCountsTest, CountsAreCumulative) {
  DurationCounts counts;
  for (const double seconds : {0.0, 0.001, 0.0011, 2.0, 100.0, 101.0, -1.0}) {
    counts.Add(absl::Seconds(seconds));
  }
  proto::DurationHistogram histogram;
  counts.AddTo(&histogram);
  EXPECT_THAT(histogram.bounds(), ElementsAre(0.001, 0.003, 0.01, 0.03, 0.1,
                                              0.3, 1, 3, 10, 30, 100));
  // Of 7: -1, 0 and 0.001 are at the first bound; 101 is above all.
  EXPECT_THAT(histogram.counts(),
              ElementsAre(3, 4, 4, 4, 4, 4, 4, 5, 5, 5, 6, 7));
  // 0 + 0.001 + 0.0011 + 2 + 100 + 101 + 0
  EXPECT_DOUBLE_EQ(histogram.sum_seconds(), 203.0021);
}

class StepTimerTest : public ::testing::Test {
 protected:
  absl::Time After(double seconds) { return now_ += absl::Seconds(seconds); }
  proto::StepTimes Times() const {
    proto::StepTimes times;
    timer_.AddTo(&times);
    return times;
  }

  absl::Time now_ = absl::UnixEpoch();
  StepTimer timer_;
};

TEST_F(StepTimerTest, NothingAtFirst) {
  EXPECT_THAT(Times().collect().counts(), Each(0));
  EXPECT_THAT(Times().commit().counts(), Each(0));
}

TEST_F(StepTimerTest, CollectsAndCommits) {
  timer_.OnOpened(now_);
  timer_.OnClosed(After(2));
  timer_.OnOpened(now_);
  timer_.OnCommitted(After(0.5));
  EXPECT_EQ(Times().collect().counts(11), 1u);
  EXPECT_DOUBLE_EQ(Times().collect().sum_seconds(), 2);
  EXPECT_EQ(Times().commit().counts(11), 1u);
  EXPECT_DOUBLE_EQ(Times().commit().sum_seconds(), 0.5);
  // The second step was open since.
  timer_.OnClosed(After(1));
  EXPECT_DOUBLE_EQ(Times().collect().sum_seconds(), 2 + 1.5);
}

// A step may be complete while the one before is still being committed.
TEST_F(StepTimerTest, AStepIsCompleteBeforeItCanBeClosed) {
  timer_.OnOpened(now_);
  timer_.OnClosed(After(1));
  timer_.OnOpened(now_);
  timer_.OnComplete(After(2));
  timer_.OnComplete(After(1));  // again
  timer_.OnCommitted(After(3));
  EXPECT_DOUBLE_EQ(Times().commit().sum_seconds(), 2 + 1 + 3);
  timer_.OnClosed(now_);
  EXPECT_DOUBLE_EQ(Times().collect().sum_seconds(), 1 + 2);
  timer_.OnCommitted(After(1));
  EXPECT_DOUBLE_EQ(Times().commit().sum_seconds(), 6 + (1 + 3) + 1);
}

TEST_F(StepTimerTest, WhatAGenerationLeavesUnfinishedDoesNotCount) {
  timer_.OnOpened(now_);
  timer_.OnClosed(After(1));
  timer_.OnOpened(now_);
  timer_.Reset();
  timer_.OnCommitted(After(100));
  timer_.OnOpened(now_);
  timer_.OnClosed(After(2));
  EXPECT_EQ(Times().commit().counts(11), 0u);
  EXPECT_DOUBLE_EQ(Times().collect().sum_seconds(), 1 + 2);
}

}  // namespace
}  // namespace holdfast
