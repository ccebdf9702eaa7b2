// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/evaluations.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

const TaskId kFirst = {kEvaluatorJob, 0};
const TaskId kSecond = {kEvaluatorJob, 1};

class EvaluationsTest : public ::testing::Test {
 protected:
  EvaluationsTest() : declared_(1, 1, true), evaluations_(&declared_) {}

  void Configure(const std::string& text) {
    proto::Journal journal;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        text, journal.mutable_declaration()->mutable_evaluation()));
    EXPECT_TRUE(declared_.TakeUp(journal).ok());
  }
  void Save(uint64_t step, uint64_t generation = 1) {
    proto::CheckpointName& name = *journal_.add_checkpoints();
    name.set_generation(generation);
    name.set_step(step);
  }
  void Report(uint64_t step, double loss, bool by_evaluator = true) {
    proto::EvaluationResult result;
    result.set_step(step);
    result.set_loss(loss);
    evaluations_.Add(result, by_evaluator);
  }
  // The step of the checkpoint; 0: none is due.
  uint64_t Due(absl::Duration since_begin = absl::ZeroDuration(),
               bool done = false) {
    Evaluations::Moment moment;
    moment.now = absl::UnixEpoch() + since_begin;
    moment.training_begun = absl::UnixEpoch();
    moment.done = done;
    const auto next = evaluations_.NextDue(journal_, moment);
    return next.has_value() ? next->step() : 0;
  }
  void Assign(const TaskId& task, uint64_t step,
              absl::Duration since_begin = absl::ZeroDuration()) {
    evaluations_.Assign(task, *FindCheckpoint(journal_, step),
                        absl::UnixEpoch() + since_begin);
  }
  std::string Best() {
    return absl::StrJoin(evaluations_.Best(journal_), " ",
                         [](std::string* out, const auto& name) {
                           absl::StrAppend(out, name.step());
                         });
  }

  JobDeclaration declared_;
  Evaluations evaluations_;
  proto::Journal journal_;
};

TEST_F(EvaluationsTest, TheNewestCheckpointIsNextOnce) {
  EXPECT_EQ(Due(), 0u);
  Save(10);
  Save(20);
  EXPECT_EQ(Due(), 20u);
  Assign(kFirst, 20);
  EXPECT_EQ(Due(), 0u);
  // Lost: another gets it.
  evaluations_.Release(kFirst);
  EXPECT_EQ(Due(), 20u);
  Assign(kSecond, 20);
  Report(20, 1);
  evaluations_.Release(kSecond);
  EXPECT_EQ(Due(), 0u);
  Save(30);
  EXPECT_EQ(Due(), 30u);
}

TEST_F(EvaluationsTest, TheFirstStateIsNoModel) {
  Save(0);
  EXPECT_EQ(Due(), 0u);
}

TEST_F(EvaluationsTest, EveryStepsTakesTheFirstAtOrAfterAMultiple) {
  Configure("every_steps: 100");
  Save(60);
  EXPECT_EQ(Due(), 0u);
  Save(130);
  EXPECT_EQ(Due(), 130u);
  Report(130, 1);
  Save(190);
  EXPECT_EQ(Due(), 0u);
  Save(200);
  EXPECT_EQ(Due(), 200u);
  Report(200, 1);
  // The last one of a job is evaluated in any case.
  Save(210);
  EXPECT_EQ(Due(), 0u);
  EXPECT_EQ(Due(absl::ZeroDuration(), /*done=*/true), 210u);
  Report(210, 1);
  EXPECT_EQ(Due(absl::ZeroDuration(), /*done=*/true), 0u);
}

TEST_F(EvaluationsTest, TheLastCheckpointIsDueUntilAnEvaluatorReportsIt) {
  const auto due_at_end = [this] {
    return Due(absl::ZeroDuration(), /*done=*/true);
  };
  Save(10);
  Report(10, 1);
  Save(20);
  // Reported by the chief.
  Report(20, 1, /*by_evaluator=*/false);
  EXPECT_EQ(Due(), 0u);
  EXPECT_EQ(due_at_end(), 20u);
  Assign(kFirst, 20);
  EXPECT_EQ(due_at_end(), 0u);
  evaluations_.Release(kFirst);
  // A late report of an earlier one changes nothing.
  Report(10, 1);
  EXPECT_EQ(due_at_end(), 20u);
  Report(20, 1);
  EXPECT_EQ(due_at_end(), 0u);
  // After a rollback, the checkpoint of the same step is another model.
  evaluations_.GoBack(10);
  journal_.mutable_checkpoints()->RemoveLast();
  Save(20, /*generation=*/2);
  EXPECT_EQ(due_at_end(), 20u);
}

TEST_F(EvaluationsTest, EverySecondsAndStartDelay) {
  Configure("every_seconds: 60 start_delay_seconds: 30");
  Save(10);
  EXPECT_EQ(Due(absl::Seconds(29)), 0u);
  EXPECT_EQ(Due(absl::Seconds(30)), 10u);
  Assign(kFirst, 10, absl::Seconds(30));
  Report(10, 1);
  evaluations_.Release(kFirst);
  Save(20);
  EXPECT_EQ(Due(absl::Seconds(89)), 0u);
  EXPECT_EQ(Due(absl::Seconds(90)), 20u);
}

TEST_F(EvaluationsTest, HoldsWhatIsBeingEvaluated) {
  Save(10);
  Save(20);
  Assign(kFirst, 10);
  EXPECT_TRUE(evaluations_.Holds(journal_.checkpoints(0)));
  EXPECT_FALSE(evaluations_.Holds(journal_.checkpoints(1)));
  evaluations_.Release(kFirst);
  EXPECT_FALSE(evaluations_.Holds(journal_.checkpoints(0)));
}

TEST_F(EvaluationsTest, TheBestAreThoseThatAreOnDisk) {
  Configure("keep_best { count: 2 }");
  for (uint64_t step = 10; step <= 40; step += 10) Save(step);
  Report(10, 3);
  Report(20, 1);
  Report(30, 2);
  Report(40, 2);
  Report(50, 0);  // in no checkpoint
  // Of equal results, the first comes first.
  EXPECT_EQ(Best(), "20 30");
  // Still among the best, although the job has removed it.
  *journal_.add_best() = journal_.checkpoints(1);
  journal_.clear_checkpoints();
  Save(40);
  EXPECT_EQ(Best(), "20 40");
  evaluations_.Forsake(journal_.checkpoints(0));
  EXPECT_EQ(Best(), "20");
}

TEST_F(EvaluationsTest, WhatTheJobHasGoneBackBehindIsForgotten) {
  Configure("keep_best {} early_stopping { patience: 1 }");
  Save(10);
  Save(20);
  Report(10, 2);
  Report(20, 1);
  Report(30, 3);
  EXPECT_EQ(Best(), "20");
  EXPECT_EQ(evaluations_.StopAfter(), 30u);
  journal_.mutable_checkpoints()->RemoveLast();
  evaluations_.GoBack(10);
  EXPECT_EQ(Best(), "10");
  EXPECT_EQ(evaluations_.StopAfter(), std::nullopt);
}

TEST_F(EvaluationsTest, PatienceCountsEvaluationsWithoutAnImprovement) {
  Configure("early_stopping { patience: 2 min_delta: 0.5 }");
  Report(10, 3);
  Report(20, 2.75);  // too little
  EXPECT_EQ(evaluations_.status()->without_improvement(), 1u);
  Report(30, 2);
  EXPECT_EQ(evaluations_.status()->without_improvement(), 0u);
  EXPECT_EQ(evaluations_.status()->best(), 2);
  EXPECT_EQ(evaluations_.status()->best_step(), 30u);
  Report(40, 2);
  EXPECT_EQ(evaluations_.StopAfter(), std::nullopt);
  Report(50, 9);
  EXPECT_EQ(evaluations_.StopAfter(), 50u);
  // Whatever comes later.
  Report(60, 0);
  EXPECT_EQ(evaluations_.StopAfter(), 50u);
}

TEST_F(EvaluationsTest, ALossThatIsNoNumberIsNoImprovement) {
  Configure("early_stopping { patience: 2 }");
  Report(10, std::nan(""));
  Report(20, std::nan(""));
  EXPECT_EQ(evaluations_.StopAfter(), 20u);
}

TEST_F(EvaluationsTest, AtFixedStepsEachIsEvaluatedInTurn) {
  Configure(
      "every_steps: 10 early_stopping { patience: 1 at_fixed_steps: true }");
  std::optional<uint64_t> missing;
  EXPECT_TRUE(evaluations_.MayCommit(9, journal_));
  // Step 10 waits for its checkpoint, and not for an evaluation of step 0, of
  // which an operator may have had a checkpoint taken.
  Save(0);
  EXPECT_FALSE(evaluations_.MayCommit(10, journal_, &missing));
  EXPECT_EQ(missing, std::nullopt);
  Save(10);
  EXPECT_TRUE(evaluations_.MayCommit(10, journal_));
  EXPECT_TRUE(evaluations_.MayCommit(19, journal_));
  Save(15);
  Save(20);
  EXPECT_FALSE(evaluations_.MayCommit(20, journal_, &missing));
  EXPECT_EQ(missing, 10u);
  // Kept until then, and due next, although there is a newer one.
  EXPECT_FALSE(evaluations_.Holds(journal_.checkpoints(0)));
  EXPECT_TRUE(evaluations_.Holds(journal_.checkpoints(1)));
  EXPECT_FALSE(evaluations_.Holds(journal_.checkpoints(2)));
  EXPECT_EQ(Due(), 10u);
  Report(10, 1);
  EXPECT_TRUE(evaluations_.MayCommit(20, journal_));
  EXPECT_EQ(Due(), 20u);
  // The job ends with step 29, whenever that is decided.
  Save(30);
  Report(20, 1);
  EXPECT_TRUE(evaluations_.MayCommit(29, journal_));
  EXPECT_FALSE(evaluations_.MayCommit(30, journal_));
}

TEST_F(EvaluationsTest, KeepsTheBestAndTheNewestResults) {
  Configure("keep_best {} early_stopping { patience: 5000 }");
  Report(1, 0);
  for (uint64_t step = 2; step <= Evaluations::kMost + 100; ++step) {
    Report(step, 1);
  }
  EXPECT_TRUE(evaluations_.Has(1));
  EXPECT_FALSE(evaluations_.Has(2));
  evaluations_.AddTo(&journal_);
  EXPECT_EQ(journal_.evaluations_size(), Evaluations::kMost);
  EXPECT_EQ(evaluations_.status()->best_step(), 1u);
  // The results come back from the journal.
  Evaluations again(&declared_);
  again.TakeUp(journal_);
  EXPECT_TRUE(again.Has(1));
  EXPECT_TRUE(again.Has(Evaluations::kMost + 100));
}

TEST_F(EvaluationsTest, ThatNothingFollowsFromIsNotInTheJournal) {
  Configure("every_steps: 10");
  Report(10, 1);
  evaluations_.AddTo(&journal_);
  EXPECT_EQ(journal_.evaluations_size(), 0);
}

}  // namespace
}  // namespace holdfast
