// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/step_timer.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

  // The next step.
  void Open() { timer_.OnOpened(step_ = step_.next(), now_); }

  absl::Time now_ = absl::UnixEpoch();
  GlobalStep step_;
  StepTimer timer_;
};

TEST_F(StepTimerTest, NothingAtFirst) {
  EXPECT_THAT(Times().collect().counts(), Each(0));
  EXPECT_THAT(Times().commit().counts(), Each(0));
}

TEST_F(StepTimerTest, CollectsAndCommits) {
  Open();
  timer_.OnClosed(After(2));
  Open();
  timer_.OnCommitted(After(0.5));
  EXPECT_EQ(Times().collect().counts(11), 1u);
  EXPECT_DOUBLE_EQ(Times().collect().sum_seconds(), 2);
  EXPECT_EQ(Times().commit().counts(11), 1u);
  EXPECT_DOUBLE_EQ(Times().commit().sum_seconds(), 0.5);
  // The second step has been open since then.
  timer_.OnClosed(After(1));
  EXPECT_DOUBLE_EQ(Times().collect().sum_seconds(), 2 + 1.5);
}

// A step may be complete while the previous one is still being committed.
TEST_F(StepTimerTest, AStepIsCompleteBeforeItCanBeClosed) {
  Open();
  timer_.OnClosed(After(1));
  Open();
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
  Open();
  timer_.OnClosed(After(1));
  Open();
  timer_.Reset();
  timer_.OnCommitted(After(100));
  Open();
  timer_.OnClosed(After(2));
  EXPECT_EQ(Times().commit().counts(11), 0u);
  EXPECT_DOUBLE_EQ(Times().collect().sum_seconds(), 1 + 2);
}

// Seconds of each stage, by step.
class Stages : public StepWatch {
 public:
  void OnStepOpened(GlobalStep step, absl::Time now) override {
    told.push_back(absl::StrCat(step.value(), " open at ", At(now)));
  }
  void OnStepClosed(GlobalStep step, absl::Time opened, absl::Time complete,
                    absl::Time now) override {
    told.push_back(absl::StrCat(step.value(), " from ", At(opened),
                                " complete at ", At(complete), " closed at ",
                                At(now)));
  }
  void OnStepCommitted(GlobalStep step, absl::Time closed,
                       absl::Time now) override {
    told.push_back(absl::StrCat(step.value(), " closed at ", At(closed),
                                " committed at ", At(now)));
  }
  static double At(absl::Time time) {
    return absl::ToDoubleSeconds(time - absl::UnixEpoch());
  }

  std::vector<std::string> told;
};

TEST_F(StepTimerTest, TellsOfEachStage) {
  Stages stages;
  timer_.SetWatch(&stages);
  Open();
  timer_.OnComplete(After(1));
  timer_.OnClosed(After(2));
  Open();
  timer_.OnCommitted(After(3));
  timer_.OnClosed(After(1));
  timer_.Reset();
  timer_.OnCommitted(After(1));
  EXPECT_THAT(stages.told,
              ElementsAre("1 open at 0", "1 from 0 complete at 1 closed at 3",
                          "2 open at 3", "1 closed at 3 committed at 6",
                          "2 from 3 complete at 7 closed at 7"));
}

}  // namespace
}  // namespace holdfast
