// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/progress.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

AcceptedPush Accepted(uint32_t worker, uint64_t examples,
                      std::optional<double> loss = 1,
                      std::optional<uint64_t> staleness = std::nullopt) {
  return {{kWorkerJob, worker}, examples, loss, staleness};
}

proto::GetStatusResponse StatusOf(const Progress& progress) {
  proto::GetStatusResponse status;
  progress.AddTo(&status);
  return status;
}

std::vector<std::string> Workers(const Progress& progress) {
  std::vector<std::string> workers;
  const proto::GetStatusResponse status = StatusOf(progress);
  for (const proto::WorkerCounts& counts : status.workers()) {
    workers.push_back(absl::StrCat(counts.worker().job(),
                                   counts.worker().index(), ": ",
                                   counts.pushes(), " of ", counts.examples()));
  }
  return workers;
}

std::vector<std::string> Staleness(const Progress& progress) {
  std::vector<std::string> staleness;
  const proto::GetStatusResponse status = StatusOf(progress);
  for (const proto::StalenessCount& count : status.staleness()) {
    staleness.push_back(absl::StrCat(count.staleness(), ": ", count.pushes()));
  }
  return staleness;
}

TEST(ProgressTest, IsNothingAtFirst) {
  EXPECT_EQ(StatusOf(Progress()).ShortDebugString(), "pushes { }");
}

TEST(ProgressTest, CountsWhatWasNotFiniteAmongTheAccepted) {
  Progress progress;
  AcceptedPush overflowed = Accepted(0, 0);
  overflowed.not_finite = true;
  progress.AddStep({overflowed, Accepted(1, 10)});
  proto::Position position;
  progress.AddTo(&position);
  for (const Progress& of : {progress, Progress(position)}) {
    EXPECT_EQ(StatusOf(of).pushes().accepted(), 2u);
    EXPECT_EQ(StatusOf(of).pushes().not_finite(), 1u);
  }
}

TEST(ProgressTest, CountsPushesByWhatBecameOfThem) {
  Progress progress;
  progress.AddStep({Accepted(0, 10), Accepted(1, 10)});
  progress.AddStep({Accepted(0, 10)});
  progress.AddRefused(proto::STALE);
  for (int i = 0; i < 2; ++i) progress.AddRefused(proto::DUPLICATE);
  for (int i = 0; i < 4; ++i) progress.AddRefused(proto::FENCED);
  for (int i = 0; i < 5; ++i) progress.AddRefused(proto::ABORTED);
  const proto::PushCounts pushes = StatusOf(progress).pushes();
  EXPECT_EQ(pushes.accepted(), 3u);
  EXPECT_EQ(pushes.stale(), 1u);
  EXPECT_EQ(pushes.duplicate(), 2u);
  EXPECT_EQ(pushes.fenced(), 4u);
  EXPECT_EQ(pushes.aborted(), 5u);
}

TEST(ProgressTest, TellsWhatEachWorkerHasGiven) {
  Progress progress;
  AcceptedPush chief = Accepted(0, 5);
  chief.worker = {kChiefJob, 0};
  progress.AddStep({Accepted(1, 20), Accepted(0, 10)});
  progress.AddStep({Accepted(1, 0), chief});
  EXPECT_THAT(
      Workers(progress),
      ElementsAre("chief0: 1 of 5", "worker0: 1 of 10", "worker1: 2 of 20"));
  EXPECT_EQ(StatusOf(progress).examples(), 35u);
  EXPECT_THAT(Staleness(progress), IsEmpty()) << "of synchronous pushes";
}

TEST(ProgressTest, TrainLossIsTheMeanOverTheExamplesOfTheWindow) {
  Progress progress;
  progress.AddStep({Accepted(0, 10, 1), Accepted(1, 30, 2)});
  EXPECT_DOUBLE_EQ(StatusOf(progress).train_loss(), 1.75);  // (10 + 60) / 40
  // A push without examples has no loss; the loss of a push known only through
  // a fence is unknown.
  progress.AddStep({Accepted(0, 0, kInfinity), Accepted(1, 40, std::nullopt)});
  EXPECT_DOUBLE_EQ(StatusOf(progress).train_loss(), 1.75);
  EXPECT_EQ(StatusOf(progress).examples(), 80u);
  // 98 further steps fill the window, the next two push the first two out.
  for (int i = 0; i < 98; ++i) progress.AddStep({Accepted(0, 1, 0)});
  EXPECT_DOUBLE_EQ(StatusOf(progress).train_loss(), 70.0 / (40 + 98));
  progress.AddStep({Accepted(0, 1, 5)});
  EXPECT_DOUBLE_EQ(StatusOf(progress).train_loss(), 5.0 / 99);
  progress.AddStep({Accepted(0, 1, 5)});
  EXPECT_DOUBLE_EQ(StatusOf(progress).train_loss(), 10.0 / 100);
}

TEST(ProgressTest, CountsPushesByStalenessUpTo1000Values) {
  Progress progress;
  for (const uint64_t staleness : {3, 0, 3, 998, 999, 1000, 1000000}) {
    progress.AddStep({Accepted(0, 1, 1, staleness)});
  }
  // 999 and all above.
  EXPECT_THAT(Staleness(progress),
              ElementsAre("0: 1", "3: 2", "998: 1", "999: 3"));
  for (uint64_t staleness = 0; staleness < 5000; ++staleness) {
    progress.AddStep({Accepted(0, 1, 1, staleness)});
  }
  EXPECT_EQ(StatusOf(progress).staleness_size(), 1000);
}

TEST(ProgressTest, GoesBackToWhereACheckpointWas) {
  const absl::Time begun = absl::UnixEpoch();
  Progress progress;
  progress.OnTrainingBegun(begun);
  progress.AddStep({Accepted(0, 10, 1)});
  progress.SetCommitted(GlobalStep(1));
  progress.OnCommit(begun + absl::Seconds(4));
  proto::Position position;
  position.set_step(1);
  progress.AddTo(&position);
  EXPECT_EQ(position.training_seconds(), 4);
  progress.AddStep({Accepted(0, 10, 1)});
  progress.SetCommitted(GlobalStep(2));
  progress.OnCommit(begun + absl::Seconds(6));
  proto::EvaluationResult evaluation;
  evaluation.set_step(2);
  progress.OnEvaluation(evaluation);

  progress.GoBack(position);
  EXPECT_EQ(progress.committed(), GlobalStep(1));
  EXPECT_EQ(StatusOf(progress).examples(), 10u);
  EXPECT_FALSE(StatusOf(progress).has_evaluation()) << "of what is lost";
  EXPECT_EQ(StatusOf(progress).training_seconds(), 6) << "it was spent";

  Progress later;
  later.GoBack(position);
  EXPECT_FALSE(later.training_begun().has_value());
  later.OnTrainingBegun(begun);
  later.OnCommit(begun + absl::Seconds(1));
  EXPECT_EQ(StatusOf(later).training_seconds(), 5) << "in two lives";
}

TEST(ProgressTest, TheLatestEvaluationCounts) {
  Progress progress;
  proto::EvaluationResult evaluation;
  for (const uint64_t step : {3, 2}) {
    evaluation.set_step(step);
    progress.OnEvaluation(evaluation);
  }
  EXPECT_EQ(StatusOf(progress).evaluation().step(), 3u);
}

}  // namespace
}  // namespace holdfast
