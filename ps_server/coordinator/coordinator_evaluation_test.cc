// SPDX-License-Identifier: Apache-2.0

// Calls that evaluate a job and change it while it runs (docs/evaluation.md).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const TaskId kEvaluator = {kEvaluatorJob, 0};

class CoordinatorEvaluationTest : public CoordinatorTest {
 protected:
  // Takes a checkpoint of each step.
  static proto::Declaration Saving(proto::Declaration declaration) {
    declaration.mutable_checkpoints()->set_every_steps(1);
    declaration.mutable_checkpoints()->set_keep(1);
    return declaration;
  }
  static proto::Declaration Judged(
      uint32_t patience,
      proto::Declaration declaration = Saving(MakeDeclaration())) {
    declaration.mutable_evaluation()->mutable_early_stopping()->set_patience(
        patience);
    return declaration;
  }
  void MakeStep(uint64_t step) {
    OfferBoth(step);
    AckCommits();
    FinishSave();
  }
  Answer<proto::NextEvaluationResponse> Next(const TaskId& task = kEvaluator,
                                             uint64_t wait_ms = 1000) {
    proto::NextEvaluationRequest request;
    *request.mutable_sender() = SenderOf(task);
    request.set_wait_ms(wait_ms);
    return Ask(&Coordinator::NextEvaluation, request);
  }
  Answer<proto::ReportEvaluationResponse> Report(
      const proto::CheckpointName& name, double loss) {
    proto::ReportEvaluationRequest request;
    *request.mutable_sender() = SenderOf(kEvaluator);
    *request.mutable_checkpoint() = name;
    request.mutable_result()->set_step(name.step());
    request.mutable_result()->set_loss(loss);
    return Ask(request);
  }
  // The chief reports the result for a version.
  Answer<proto::ReportEvaluationResponse> Report(uint64_t step, double loss) {
    proto::ReportEvaluationRequest request;
    *request.mutable_sender() = SenderOf(Worker(0));
    request.mutable_result()->set_step(step);
    request.mutable_result()->set_loss(loss);
    return Ask(request);
  }
  Answer<proto::SetLearningRateResponse> SetRate(
      float factor, std::optional<uint64_t> at_step = std::nullopt) {
    proto::SetLearningRateRequest request;
    request.set_factor(factor);
    if (at_step.has_value()) request.set_at_step(*at_step);
    return Ask(&Coordinator::SetLearningRate, request);
  }
  // Worker `index` asks for the end of the job.
  Answer<proto::StopResponse> Finish(uint32_t index = 0,
                                     uint64_t wait_ms = 1000) {
    proto::StopRequest request;
    *request.mutable_sender() = SenderOf(Worker(index));
    request.set_finish(true);
    request.set_wait_ms(wait_ms);
    return Ask(&Coordinator::Stop, request);
  }
  // The texts of the events of that kind.
  std::vector<std::string> Texts(proto::Event::Kind kind) const {
    std::vector<std::string> texts;
    for (const proto::Event& event : events().events()) {
      if (event.kind() == kind) texts.push_back(event.text());
    }
    return texts;
  }
  bool Told(proto::Event::Kind kind) const {
    for (const proto::Event& event : events().events()) {
      if (event.kind() == kind) return true;
    }
    return false;
  }
};

// ---- Evaluators ----

TEST_F(CoordinatorEvaluationTest, AnEvaluatorIsGivenTheNewestCheckpoint) {
  MakeWithArchive();
  StartTraining(Saving(MakeDeclaration()));
  Join(kEvaluator);
  const auto first = Next();
  EXPECT_FALSE(first.came());
  MakeStep(0);
  ASSERT_TRUE(first.came());
  EXPECT_EQ(first->checkpoint().step(), 1u);
  EXPECT_EQ(Status().evaluating(0).step(), 1u);
  // It is not removed meanwhile, although only one is kept.
  MakeStep(1);
  MakeStep(2);
  EXPECT_EQ(archive_->Checkpoints(), "1/1 1/3");
  EXPECT_TRUE(Report(first->checkpoint(), 0.5).status().ok());
  EXPECT_EQ(Status().evaluation().loss(), 0.5);
  EXPECT_THAT(Status().evaluating(), IsEmpty());
  EXPECT_EQ(Next()->checkpoint().step(), 3u);
  MakeStep(3);
  EXPECT_EQ(archive_->Checkpoints(), "1/3 1/4");
}

TEST_F(CoordinatorEvaluationTest, OnlyEvaluatorsAskAndOnlyWithCheckpoints) {
  StartTraining();
  Join(kEvaluator);
  EXPECT_EQ(Next().status().code(), kNotReady);
  EXPECT_THAT(std::string(Next().status().message()),
              HasSubstr("--checkpoint_dir"));
  EXPECT_EQ(Next(Worker(0)).status().code(), kInvalid);
}

TEST_F(CoordinatorEvaluationTest, NobodyWaitsForAnEvaluatorThatIsLost) {
  MakeWithArchive();
  recovery_timeout_ = absl::ZeroDuration();
  StartTraining(Saving(MakeDeclaration()));
  Join(kEvaluator);
  MakeStep(0);
  ASSERT_EQ(Next()->checkpoint().step(), 1u);
  Pass(2 * kLease, AllTasks());
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_TRUE(Told(proto::Event::LOST));
  EXPECT_THAT(Status().evaluating(), IsEmpty());
  MakeStep(1);
  EXPECT_EQ(archive_->Checkpoints(), "1/2");
  // Another takes its place, and its checkpoints.
  Join(kEvaluator, 2);
  EXPECT_EQ(Next()->checkpoint().step(), 2u);
}

TEST_F(CoordinatorEvaluationTest, AnEvaluatorThatFailsEndsNoJob) {
  MakeWithArchive();
  StartTraining(Saving(MakeDeclaration()));
  Join(kEvaluator);
  Leave(kEvaluator, "its data are gone");
  EXPECT_EQ(state().phase(), proto::TRAINING);
}

TEST_F(CoordinatorEvaluationTest, ADoneJobsLastCheckpointIsEvaluatedToo) {
  MakeWithArchive();
  StartTraining(Saving(MakeDeclaration(2)));
  Join(kEvaluator);
  MakeStep(0);
  const auto first = Next();
  MakeStep(1);
  ASSERT_EQ(state().phase(), proto::DONE);
  for (const uint32_t worker : {0, 1}) Leave(Worker(worker));
  Tick();
  EXPECT_THAT(links_->ends, IsEmpty()) << "the evaluator is at work";
  EXPECT_TRUE(Report(first->checkpoint(), 1).status().ok());
  const auto last = Next();
  EXPECT_EQ(last->checkpoint().step(), 2u);
  EXPECT_TRUE(Report(last->checkpoint(), 0.5).status().ok());
  const auto none = Next();
  ASSERT_TRUE(none.came());
  EXPECT_FALSE(none->has_checkpoint());
  EXPECT_EQ(none->state().phase(), proto::DONE);
  Leave(kEvaluator);
  Tick();
  EXPECT_FALSE(links_->ends.empty());
}

// A short job may be done, and its chief may have reported on the last version,
// before an evaluator has started.
TEST_F(CoordinatorEvaluationTest,
       AnEvaluatorThatComesLastHasTheLastCheckpoint) {
  MakeWithArchive();
  StartTraining(Saving(MakeDeclaration(1)));
  MakeStep(0);
  ASSERT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(Report(1, 0.5).status().ok());
  Join(kEvaluator);
  for (const uint32_t worker : {0, 1}) Leave(Worker(worker));
  Tick();
  EXPECT_THAT(links_->ends, IsEmpty()) << "the evaluator is at work";
  const auto last = Next();
  ASSERT_TRUE(last.came());
  EXPECT_EQ(last->checkpoint().step(), 1u);
  EXPECT_TRUE(Report(last->checkpoint(), 0.5).status().ok());
  const auto none = Next();
  ASSERT_TRUE(none.came());
  EXPECT_FALSE(none->has_checkpoint());
  Leave(kEvaluator);
  Tick();
  EXPECT_FALSE(links_->ends.empty());
}

TEST_F(CoordinatorEvaluationTest, AnEvaluatorThatTakesTooLongIsLeftBehind) {
  MakeWithArchive();
  StartTraining(Saving(MakeDeclaration(1)));
  Join(kEvaluator);
  MakeStep(0);
  ASSERT_EQ(state().phase(), proto::DONE);
  ASSERT_EQ(Next()->checkpoint().step(), 1u);
  for (const uint32_t worker : {0, 1}) Leave(Worker(worker));
  Pass(options_.step_timeout, {Ps(1), kEvaluator});
  EXPECT_THAT(links_->ends, IsEmpty());
  Pass(absl::Seconds(1), {Ps(1), kEvaluator});
  EXPECT_FALSE(links_->ends.empty());
}

TEST_F(CoordinatorEvaluationTest, AReportToAStoppedJobIsAnswered) {
  MakeWithArchive();
  proto::Declaration declaration = Saving(MakeDeclaration());
  declaration.mutable_evaluation()->mutable_keep_best();
  StartTraining(declaration);
  Join(kEvaluator);
  MakeStep(0);
  const proto::CheckpointName first = Next()->checkpoint();
  const auto stopped = Ask(&Coordinator::Stop, proto::StopRequest());
  FinishSave();
  ASSERT_EQ(state().phase(), proto::STOPPED);
  EXPECT_TRUE(Report(first, 0.5).status().ok());
  EXPECT_EQ(Next()->state().phase(), proto::STOPPED);
}

// The journal of a job that is done is not written again by itself.
TEST_F(CoordinatorEvaluationTest, AReportThatCannotBeKeptIsToldSo) {
  MakeWithArchive();
  proto::Declaration declaration = Saving(MakeDeclaration(1));
  declaration.mutable_evaluation()->mutable_keep_best();
  StartTraining(declaration);
  Join(kEvaluator);
  MakeStep(0);
  ASSERT_EQ(state().phase(), proto::DONE);
  const proto::CheckpointName last = Next()->checkpoint();
  archive_->quick = false;
  const auto lost = Report(last, 0.5);
  EXPECT_FALSE(lost.came());
  archive_->AnswerJournal(absl::UnavailableError("no space left on device"));
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(archive_->journals, IsEmpty());
  const auto kept = Report(last, 0.5);
  archive_->AnswerJournal();
  EXPECT_TRUE(kept.status().ok());
  EXPECT_EQ(archive_->journal.best_size(), 1);
}

TEST_F(CoordinatorEvaluationTest, AReportOfAnotherLineIsDropped) {
  MakeWithArchive();
  StartTraining(Saving(MakeDeclaration()));
  Join(kEvaluator);
  MakeStep(0);
  proto::CheckpointName other;
  other.set_generation(7);
  other.set_step(1);
  EXPECT_TRUE(Report(other, 0.5).status().ok());
  EXPECT_FALSE(Status().has_evaluation());
}

TEST_F(CoordinatorEvaluationTest, FiguresHaveBounds) {
  StartTraining();
  proto::ReportEvaluationRequest request;
  *request.mutable_sender() = SenderOf(Worker(0));
  for (int i = 0; i < 33; ++i) {
    (*request.mutable_result()->mutable_metrics())[std::to_string(i)] = i;
  }
  EXPECT_EQ(Ask(request).status().code(), kInvalid);
  request.mutable_result()->clear_metrics();
  (*request.mutable_result()->mutable_metrics())[std::string(65, 'x')] = 1;
  EXPECT_EQ(Ask(request).status().code(), kInvalid);
}

// ---- The best ----

TEST_F(CoordinatorEvaluationTest, TheBestCheckpointStays) {
  MakeWithArchive();
  proto::Declaration declaration = Saving(MakeDeclaration());
  declaration.mutable_evaluation()->mutable_keep_best();
  StartTraining(declaration);
  Join(kEvaluator);
  for (uint64_t step = 0; step < 3; ++step) {
    MakeStep(step);
    const double losses[] = {2, 1, 3};
    EXPECT_TRUE(Report(Next()->checkpoint(), losses[step]).status().ok());
    EXPECT_THAT(archive_->best, ElementsAre(step == 0 ? "1/1" : "1/2"));
  }
  EXPECT_EQ(archive_->Checkpoints(), "1/3");
  EXPECT_EQ(Status().best(0).step(), 2u);
  EXPECT_TRUE(Told(proto::Event::BEST));
  // The same holds in the next life.
  Begin();
  StartTraining(declaration);
  EXPECT_EQ(Status().best(0).step(), 2u);
  EXPECT_THAT(archive_->best, ElementsAre("1/2"));
}

TEST_F(CoordinatorEvaluationTest, OneThatCannotBeLinkedIsTold) {
  MakeWithArchive();
  proto::Declaration declaration = Saving(MakeDeclaration());
  declaration.mutable_evaluation()->mutable_keep_best();
  StartTraining(declaration);
  Join(kEvaluator);
  MakeStep(0);
  archive_->best_status = absl::UnavailableError("no hard links here");
  EXPECT_TRUE(Report(Next()->checkpoint(), 1).status().ok());
  EXPECT_THAT(archive_->journal.best(), IsEmpty());
  EXPECT_TRUE(Told(proto::Event::CHECKPOINT_FAILED));
  EXPECT_EQ(state().phase(), proto::TRAINING);
}

TEST_F(CoordinatorEvaluationTest, WhatNeedsCheckpointsSaysSo) {
  Make();
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_evaluation()->mutable_keep_best();
  for (const TaskId& task : AllTasks()) Join(task);
  EXPECT_EQ(Declare(declaration).status().code(), kInvalid);
  declaration.mutable_evaluation()->clear_keep_best();
  declaration.mutable_evaluation()->set_every_steps(2);
  declaration.mutable_evaluation()->mutable_early_stopping()->set_patience(1);
  declaration.mutable_evaluation()
      ->mutable_early_stopping()
      ->set_at_fixed_steps(true);
  EXPECT_THAT(std::string(Declare(declaration).status().message()),
              AllOf(HasSubstr("at_fixed_steps"), HasSubstr("checkpoint_dir")));
}

// ---- Early stopping ----

TEST_F(CoordinatorEvaluationTest, AJobThatDoesNotImproveIsDoneEarly) {
  MakeWithArchive();
  StartTraining(Judged(2));
  for (uint64_t step = 0; step < 4; ++step) MakeStep(step);
  Report(1, 1);
  Report(2, 1);
  EXPECT_EQ(Status().early_stopping().without_improvement(), 1u);
  const auto late = Offer(Worker(0), 4, 0, 5);
  EXPECT_FALSE(late.came());
  Report(3, 2);
  ASSERT_TRUE(late.came());
  EXPECT_EQ(late->verdict(), proto::STALE);
  EXPECT_EQ(Offer(Worker(1), 4, 1, 5)->verdict(), proto::STALE);
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(archive_->journal.finished());
  EXPECT_EQ(archive_->Checkpoints(), "1/4");
  EXPECT_EQ(Status().early_stopping().stop_at(), 4u);
  EXPECT_EQ(Status().global_step(), 4u);
  EXPECT_TRUE(Told(proto::Event::EARLY_STOPPING));
}

TEST_F(CoordinatorEvaluationTest, WithoutCheckpointsToo) {
  Make();
  StartTraining(Judged(1, MakeDeclaration()));
  OfferBoth(0);
  Report(0, 1);
  Report(1, 1);
  EXPECT_EQ(state().phase(), proto::TRAINING) << "step 0 is being committed";
  AckCommits();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(Status().global_step(), 1u);
}

TEST_F(CoordinatorEvaluationTest, TheDecisionOutlivesTheCoordinator) {
  MakeWithArchive();
  StartTraining(Judged(1));
  MakeStep(0);
  MakeStep(1);
  Report(1, 1);
  Report(2, 1);  // decides; the last checkpoint is that of step 2
  Begin();
  for (const TaskId& task : AllTasks()) Join(task, 9);
  ASSERT_TRUE(Declare(Judged(1)).status().ok());
  PuppetLinks::AnswerAll(links_->restores);
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(Status().global_step(), 2u);
}

TEST_F(CoordinatorEvaluationTest, AsynchronousTicketsThatAreOutAreSpent) {
  MakeWithArchive();
  StartTraining(Judged(1, Saving(Asynchronous(100))));
  EXPECT_EQ(Index(Take(Worker(0), 1)), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
  Report(1, 1);
  Report(2, 1);
  const auto no_more = Take(Worker(0), 2, {Spent(1)});
  EXPECT_FALSE(no_more.came());
  EXPECT_EQ(state().phase(), proto::TRAINING) << "ticket 1 is out";
  Book(Worker(1), 1);
  PuppetLinks::AnswerAll(links_->holds);
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(Empty(no_more));
  EXPECT_TRUE(archive_->journal.finished());
  EXPECT_EQ(Status().global_step(), 2u);
}

TEST_F(CoordinatorEvaluationTest, AtFixedStepsTheStepDoesNotDependOnTiming) {
  MakeWithArchive();
  proto::Declaration declaration = Judged(1, MakeDeclaration());
  declaration.mutable_evaluation()->set_every_steps(2);
  declaration.mutable_evaluation()
      ->mutable_early_stopping()
      ->set_at_fixed_steps(true);
  StartTraining(declaration);
  Join(kEvaluator);
  OfferBoth(0);
  AckCommits();
  EXPECT_THAT(links_->saves, IsEmpty());
  OfferBoth(1);
  AckCommits();
  // Step 2 waits for the checkpoint.
  OfferBoth(2);
  EXPECT_THAT(links_->commits, IsEmpty());
  EXPECT_THAT(Status().waiting_for(), "");
  FinishSave();
  EXPECT_EQ(Commit().step(), 2u);
  AckCommits();
  OfferBoth(3);
  AckCommits();
  // Step 4 waits for the evaluation of step 2.
  OfferBoth(4);
  FinishSave();
  EXPECT_THAT(links_->commits, IsEmpty());
  Pass(absl::Seconds(3), AllTasks());
  EXPECT_THAT(Status().waiting_for(),
              HasSubstr("the evaluation of step 2 by /job:evaluator/task:0"));
  const auto two = Next();
  ASSERT_EQ(two->checkpoint().step(), 2u);
  Report(two->checkpoint(), 1);
  EXPECT_EQ(Commit().step(), 4u);
  AckCommits();
  // The result of step 4 is no better: the job ends at step 6.
  const auto four = Next();
  ASSERT_EQ(four->checkpoint().step(), 4u);
  Report(four->checkpoint(), 1);
  EXPECT_EQ(Status().early_stopping().stop_at(), 6u);
  OfferBoth(5);
  AckCommits();
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(Status().global_step(), 6u);
}

// ---- Ended by a worker ----

TEST_F(CoordinatorEvaluationTest, AWorkerEndsTheJobForAll) {
  Make();
  StartTraining();
  OfferBoth(0);
  const auto late = Offer(Worker(1), 1, 1, 2);
  const auto ended = Finish();
  EXPECT_EQ(late->verdict(), proto::STALE) << "step 1 is not made";
  EXPECT_FALSE(ended.came()) << "step 0 is being committed";
  EXPECT_THAT(Texts(proto::Event::EARLY_STOPPING),
              ElementsAre("/job:worker/task:0 (host-of-worker0:77) has ended "
                          "the job at step 1 of 10"));
  // Once is enough.
  const auto again = Finish(1);
  AckCommits();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(ended->state().phase(), proto::DONE);
  EXPECT_EQ(again->step(), 1u);
  EXPECT_EQ(Finish(1)->state().phase(), proto::DONE);
  EXPECT_THAT(Texts(proto::Event::EARLY_STOPPING), SizeIs(1));
}

TEST_F(CoordinatorEvaluationTest, TheEndIsAnsweredWhenItIsOnDisk) {
  MakeWithArchive();
  StartTraining();
  archive_->quick = false;
  const auto ended = Finish(0, /*wait_ms=*/0);
  EXPECT_FALSE(ended.came());
  OfferBoth(0);
  EXPECT_THAT(links_->commits, SizeIs(2)) << "goes on until then";
  AckCommits();
  archive_->AnswerJournal();
  ASSERT_TRUE(ended.came());
  EXPECT_EQ(archive_->journal.early_end().by(),
            "/job:worker/task:0 (host-of-worker0:77)");
  archive_->quick = true;
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(archive_->journal.finished());
  EXPECT_EQ(archive_->Checkpoints(), "1/1");
}

TEST_F(CoordinatorEvaluationTest, TheEndOutlivesTheCoordinatorAndRollBacks) {
  MakeWithArchive();
  StartTraining(Saving(MakeDeclaration()));
  MakeStep(0);
  OfferBoth(1);
  AckCommits();
  Finish();
  // The checkpoint of step 2 was not written.
  Begin();
  for (const TaskId& task : AllTasks()) Join(task, 9);
  ASSERT_TRUE(Declare(Saving(MakeDeclaration())).status().ok());
  PuppetLinks::AnswerAll(links_->restores);
  FinishSave();
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_THAT(Texts(proto::Event::EARLY_STOPPING).back(),
              AllOf(HasSubstr("the job is done at step 1 of 10, to which it "
                              "has gone back"),
                    HasSubstr("has ended it at step 2")));
  // With more steps it goes on.
  Begin();
  for (const TaskId& task : AllTasks()) Join(task, 10);
  ASSERT_TRUE(Declare(Saving(MakeDeclaration(12))).status().ok());
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_FALSE(archive_->journal.has_early_end());
  MakeStep(1);
  EXPECT_EQ(state().phase(), proto::TRAINING);
}

TEST_F(CoordinatorEvaluationTest, TheEndWaitsForTicketsThatAreOut) {
  Make();
  StartTraining(Asynchronous(100));
  EXPECT_EQ(Index(Take(Worker(0), 1)), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
  Finish();
  EXPECT_THAT(Texts(proto::Event::EARLY_STOPPING),
              ElementsAre(HasSubstr("has ended the job at step 2 of 100")));
  const auto no_more = Take(Worker(0), 2, {Spent(1)});
  EXPECT_FALSE(no_more.came());
  Book(Worker(1), 1);
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(Empty(no_more));
}

TEST_F(CoordinatorEvaluationTest, TicketsOfASynchronousJobToo) {
  Make();
  StartTraining(ByTicket(2, 2, 100));
  EXPECT_EQ(Index(Take(Worker(0), 1)), 0u);
  const auto parked = Offer(Worker(0), 0, 0, 1);
  Finish(1);
  EXPECT_EQ(parked->verdict(), proto::STALE);
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_TRUE(Empty(Take(Worker(0), 2)));
}

TEST_F(CoordinatorEvaluationTest, WhoMayNotEndTheJob) {
  Make();
  Join(Worker(0));
  EXPECT_EQ(Finish().status().code(), kNotReady) << "nothing is declared";
  Make();
  StartTraining();
  proto::StopRequest request;
  *request.mutable_sender() = SenderOf(Worker(0));
  EXPECT_EQ(Ask(&Coordinator::Stop, request).status().code(),
            absl::StatusCode::kPermissionDenied);
  request.set_finish(true);
  request.mutable_sender()->set_incarnation(77);
  EXPECT_EQ(Ask(&Coordinator::Stop, request).status().code(), kNotFound);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  // An operator may.
  request.clear_sender();
  EXPECT_TRUE(Ask(&Coordinator::Stop, request).came());
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_THAT(Texts(proto::Event::EARLY_STOPPING),
              ElementsAre(HasSubstr("an operator has ended the job")));
}

// ---- The learning rate ----

TEST_F(CoordinatorEvaluationTest, TheRateChangesAtAStep) {
  MakeWithArchive();
  StartTraining(Saving(MakeDeclaration()));
  EXPECT_EQ(SetRate(0.5, 1)->step(), 1u);
  OfferBoth(0);
  EXPECT_FLOAT_EQ(Commit().scalars(0).learning_rate(), 0.1f);
  AckCommits();
  FinishSave();
  EXPECT_EQ(Status().learning_rate_factor(), 0.5f);
  OfferBoth(1);
  EXPECT_FLOAT_EQ(Commit().scalars(0).learning_rate(), 0.05f);
  AckCommits();
  FinishSave();
  EXPECT_EQ(SetRate(2)->step(), 2u);
  EXPECT_EQ(SetRate(1, 1).status().code(), kNotReady);
  EXPECT_TRUE(Told(proto::Event::LEARNING_RATE));
  // Kept in the next life, too, and in the checkpoint.
  Begin();
  StartTraining(Saving(MakeDeclaration()));
  EXPECT_EQ(archive_->complete["1/2"].position().learning_rate_factor(), 0.5f);
  OfferBoth(2);
  EXPECT_FLOAT_EQ(Commit().scalars(0).learning_rate(), 0.2f);
  EXPECT_EQ(Status().learning_rate_changes_size(), 2);
}

// The journal is still busy with an earlier change.
TEST_F(CoordinatorEvaluationTest, ACheckpointIsInTheJournalWithItsRates) {
  MakeWithArchive();
  StartTraining(Saving(MakeDeclaration()));
  archive_->quick = false;
  SetRate(0.5, 5);
  SetRate(2);
  MakeStep(0);
  archive_->AnswerManifest();
  ASSERT_EQ(archive_->journals.size(), 1u);
  EXPECT_EQ(archive_->journals[0].request.learning_rate_changes_size(), 1);
  archive_->AnswerJournal();
  ASSERT_EQ(archive_->journals.size(), 1u);
  const proto::Journal& with_checkpoint = archive_->journals[0].request;
  EXPECT_EQ(with_checkpoint.checkpoints_size(), 1);
  ASSERT_EQ(with_checkpoint.learning_rate_changes_size(), 2);
  EXPECT_EQ(with_checkpoint.learning_rate_changes(0).step(), 0u);
  EXPECT_EQ(with_checkpoint.learning_rate_changes(0).factor(), 2);
}

TEST_F(CoordinatorEvaluationTest, TicketsThatAreOutKeepTheirRate) {
  MakeWithArchive();
  StartTraining(Asynchronous(100));
  const auto out = Take(Worker(0), 1);
  EXPECT_EQ(SetRate(0.5)->step(), 1u);
  EXPECT_FLOAT_EQ(out->ticket().scalars(0).learning_rate(), 0.1f);
  EXPECT_FLOAT_EQ(Take(Worker(0), 1)->ticket().scalars(0).learning_rate(),
                  0.1f);
  EXPECT_FLOAT_EQ(Take(Worker(1), 1)->ticket().scalars(0).learning_rate(),
                  0.05f);
}

TEST_F(CoordinatorEvaluationTest, TheRateOfAJobThatIsNotTrainingIsNotSet) {
  Make();
  EXPECT_EQ(SetRate(0.5).status().code(), kNotReady);
  TrainToTheEnd();
  EXPECT_EQ(SetRate(0.5).status().code(), kNotReady);
}

TEST_F(CoordinatorEvaluationTest, AChangeIsToldWhenItIsOnDisk) {
  MakeWithArchive();
  StartTraining();
  archive_->quick = false;
  const auto answer = SetRate(0.5);
  EXPECT_FALSE(answer.came());
  archive_->AnswerJournal();
  EXPECT_TRUE(answer.came());
  const auto never = SetRate(0.25);
  Fail("the roof is on fire");
  EXPECT_EQ(never.status().code(), kAborted);
}

}  // namespace
}  // namespace holdfast
