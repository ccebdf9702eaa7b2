// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/job_history.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <typename Entries>
std::vector<uint64_t> Steps(const Entries& entries) {
  std::vector<uint64_t> steps;
  for (const auto& entry : entries) steps.push_back(entry.step());
  return steps;
}

// A job with 10 examples per step; the loss of step s is s.
class JobHistoryTest : public ::testing::Test {
 protected:
  void Reach(uint64_t step) {
    while (reached_ < step) {
      pending_.push_back(++reached_);
      if (!history_.WantsPoint(reached_)) continue;
      proto::HistoryPoint point;
      point.set_step(reached_);
      point.set_examples(10 * reached_);
      point.set_loss(MeanOf(pending_.front(), pending_.back()));
      history_.AddPoint(point);
      pending_.clear();
    }
  }
  // The mean loss of these steps.
  static double MeanOf(uint64_t first, uint64_t last) {
    return static_cast<double>(first + last) / 2;
  }
  proto::GetHistoryResponse Answer(uint64_t after = 0, uint32_t most = 0) {
    proto::GetHistoryRequest request;
    request.set_after_step(after);
    request.set_max_points(most);
    return history_.Answer(request);
  }
  void Evaluate(uint64_t step, double loss = 1) {
    proto::EvaluationResult result;
    result.set_step(step);
    result.set_loss(loss);
    history_.AddEvaluation(result);
  }

  JobHistory history_;
  uint64_t reached_ = 0;
  std::vector<uint64_t> pending_;
};

TEST_F(JobHistoryTest, APointForEachStep) {
  EXPECT_EQ(history_.last_step(), 0u);
  EXPECT_THAT(Answer().points(), IsEmpty());
  Reach(3);
  EXPECT_THAT(Steps(Answer().points()), ElementsAre(1, 2, 3));
  EXPECT_EQ(Answer().points(1).loss(), 2);
  EXPECT_EQ(Answer().points(1).examples(), 20u);
  EXPECT_THAT(Steps(Answer(2).points()), ElementsAre(3));
  EXPECT_THAT(Answer(3).points(), IsEmpty());
}

TEST_F(JobHistoryTest, IsThinnedEvenly) {
  Reach(JobHistory::kMostPoints - 1);
  EXPECT_EQ(Answer().points_size(), 9999);
  Reach(JobHistory::kMostPoints);
  // 2, 4, ..., 10000.
  EXPECT_EQ(Answer().points_size(), 5000);
  EXPECT_EQ(Answer().points(0).step(), 2u);
  EXPECT_EQ(Answer().points(4999).step(), 10000u);
  Reach(100000);
  // From 80000 on every 16th step.
  const proto::GetHistoryResponse all = Answer();
  EXPECT_EQ(all.points_size(), 100000 / 16);
  for (int i = 0; i < all.points_size(); ++i) {
    const uint64_t step = 16 * (i + 1);
    ASSERT_EQ(all.points(i).step(), step);
    // The mean over each step's examples, however often points were merged.
    ASSERT_DOUBLE_EQ(all.points(i).loss(), MeanOf(step - 15, step));
  }
}

TEST_F(JobHistoryTest, LossesThatAreNotKnownDoNotCount) {
  proto::HistoryPoint point;
  for (uint64_t step = 1; step <= 4; ++step) {
    point.set_step(step);
    point.set_examples(step <= 2 ? 10 * step : 20);
    point.clear_loss();
    if (step == 1) point.set_loss(3);
    history_.AddPoint(point);
  }
  // Steps 1 and 2 are one point, and 3 and 4, which has none.
  const proto::GetHistoryResponse thinned = Answer(0, 2);
  ASSERT_THAT(Steps(thinned.points()), ElementsAre(2, 4));
  EXPECT_EQ(thinned.points(0).loss(), 3);
  EXPECT_FALSE(thinned.points(1).has_loss());
}

TEST_F(JobHistoryTest, AnAnswerIsThinnedEvenly) {
  Reach(10);
  EXPECT_THAT(Steps(Answer(0, 10).points()),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(Steps(Answer(0, 9).points()), ElementsAre(2, 4, 6, 8, 10));
  // The newest point is always there, so the first one covers fewer steps.
  EXPECT_THAT(Steps(Answer(0, 4).points()), ElementsAre(1, 4, 7, 10));
  EXPECT_EQ(Answer(0, 4).points(1).loss(), MeanOf(2, 4));
  EXPECT_THAT(Steps(Answer(0, 1).points()), ElementsAre(10));
  EXPECT_EQ(Answer(0, 1).points(0).loss(), MeanOf(1, 10));
  EXPECT_THAT(Steps(Answer(6, 2).points()), ElementsAre(8, 10));
  EXPECT_EQ(Answer(6, 2).points(0).loss(), MeanOf(7, 8));
}

TEST_F(JobHistoryTest, IsCutAtARollback) {
  Reach(20);
  for (const uint64_t step : {5, 10, 15}) Evaluate(step);
  history_.GoBack(12);
  EXPECT_EQ(history_.last_step(), 12u);
  EXPECT_THAT(Steps(Answer(9).points()), ElementsAre(10, 11, 12));
  EXPECT_THAT(Steps(Answer().evaluations()), ElementsAre(5, 10));
  reached_ = 12;
  Reach(14);
  EXPECT_THAT(Steps(Answer(11).points()), ElementsAre(12, 13, 14));
  history_.GoBack(0);
  EXPECT_THAT(Answer().points(), IsEmpty());
  EXPECT_TRUE(history_.WantsPoint(1));
}

// Between two points: the next point is where it would have been.
TEST_F(JobHistoryTest, ARollbackKeepsTheStride) {
  Reach(JobHistory::kMostPoints);
  history_.GoBack(1001);
  EXPECT_EQ(history_.last_step(), 1000u);
  reached_ = 1001;
  Reach(1005);
  EXPECT_THAT(Steps(Answer(998).points()), ElementsAre(1000, 1002, 1004));
}

TEST_F(JobHistoryTest, EvaluationsAreByStep) {
  for (const uint64_t step : {10, 30, 20}) Evaluate(step);
  EXPECT_THAT(Steps(Answer().evaluations()), ElementsAre(10, 20, 30));
  Evaluate(20, 0.5);
  EXPECT_THAT(Steps(Answer(10).evaluations()), ElementsAre(20, 30));
  EXPECT_EQ(Answer(10).evaluations(0).loss(), 0.5);
  history_.GoBack(0);
  for (uint64_t step = 1; step <= JobHistory::kMostPoints + 1; ++step) {
    Evaluate(step);
  }
  // Every second one of 10001, with the newest.
  EXPECT_EQ(Answer().evaluations_size(), 5001);
  EXPECT_THAT(Steps(Answer(9997).evaluations()), ElementsAre(9999, 10001));
}

TEST_F(JobHistoryTest, GoesOnWhereTheFileEnds) {
  Reach(JobHistory::kMostPoints);
  Evaluate(100);
  proto::History file;
  history_.AddTo(&file);
  JobHistory next;
  next.TakeUp(file);
  EXPECT_EQ(next.last_step(), 10000u);
  EXPECT_FALSE(next.WantsPoint(10001));
  EXPECT_TRUE(next.WantsPoint(10002));
  EXPECT_EQ(next.changes(), 0u);
  proto::History again;
  next.AddTo(&again);
  EXPECT_EQ(again.SerializeAsString(), file.SerializeAsString());
}

// A file as another program may have left it.
TEST_F(JobHistoryTest, AFileOutOfOrder) {
  proto::History file;
  for (const uint64_t step : {0, 3, 2, 3, 7}) file.add_points()->set_step(step);
  history_.TakeUp(file);
  EXPECT_THAT(Steps(Answer().points()), ElementsAre(3, 7));
  EXPECT_TRUE(history_.WantsPoint(8));
}

}  // namespace
}  // namespace holdfast
