// SPDX-License-Identifier: Apache-2.0

// The restore of a generation, from a checkpoint or a warm start, and what is
// known afterwards (docs/protocol/recovery.md, G4 and G5).
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_restore_testing.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// ---- G4: restore ----

TEST_F(CoordinatorRestoreTest, AShardThatFindsItsDataDamaged_G4) {
  StartWithArchive();
  for (uint64_t step = 0; step < 2; ++step) {
    TrainStep(step);
    SaveNow();
  }
  ReplacePs();
  EXPECT_EQ(PuppetArchive::Name(Restored().checkpoint()), "1/2");
  PuppetLinks::Answer(links_->restores, 1, Damaged());
  EXPECT_EQ(archive_->Checkpoints(), "1/1");
  EXPECT_EQ(Restored().sender().generation(), 3u);
  EXPECT_EQ(PuppetArchive::Name(Restored().checkpoint()), "1/1");
  PuppetLinks::Answer(links_->restores, 0, Damaged());  // of generation 2
  EXPECT_EQ(archive_->Checkpoints(), "1/1") << "that was the other one";
  AckRestores();
  EXPECT_EQ(Status().generation(), 3u);
  EXPECT_EQ(Status().global_step(), 1u);
}

TEST_F(CoordinatorRestoreTest, WhatIsRestoredIsTheStepOfTheStatus_G5) {
  StartWithArchive();
  TrainStep(0);
  SaveNow();
  TrainStep(1);
  ReplacePs();
  EXPECT_EQ(state().phase(), proto::STARTING);
  EXPECT_EQ(Status().global_step(), 1u);
}

// The time that the previous generation waited does not count for this one.
TEST_F(CoordinatorRestoreTest, AWaitBeginsWithItsGeneration) {
  StartWithArchive();
  TrainStep(0);
  SaveNow();
  Pass(absl::Seconds(10), AllTasks());
  EXPECT_THAT(Status().waiting_for(), HasSubstr("/job:worker/task:0"));
  ReplacePs();
  EXPECT_EQ(Status().waiting_for(), "");
  Pass(absl::Seconds(3), AllTasks());
  EXPECT_THAT(Status().waiting_for(), HasSubstr("the state of step 1"));
}

TEST_F(CoordinatorRestoreTest, ARestoreMayTakeAsLongAsItMoves_G4) {
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_timeouts()->set_start_seconds(5);
  declaration.mutable_timeouts()->set_recovery_seconds(5);
  declaration.mutable_timeouts()->set_disk_seconds(20);
  StartWithArchive(declaration);
  TrainStep(0);
  SaveNow();
  ReplacePs();
  EXPECT_EQ(Restored().wait_ms(), 2000u);
  PuppetLinks::Answer(links_->restores, 0);
  for (uint64_t bytes = 0; bytes < 100; ++bytes) {
    NotYetRestored(1, bytes, 100);
    Pass(kTick, AllTasks());
    ASSERT_THAT(PuppetLinks::To(links_->restores), ElementsAre(1)) << bytes;
    links_->restores.front().reply(absl::UnavailableError("a lost answer"));
    links_->restores.clear();
    Pass(absl::Seconds(1), AllTasks());
    ASSERT_EQ(state().phase(), proto::STARTING) << state().reason();
    while (links_->restores.size() > 1) links_->restores.pop_back();
  }
  EXPECT_EQ(Status().waiting_for(),
            "the state of step 1 at /job:ps/task:1 (99 of 100 bytes; a lost "
            "answer)");
  EXPECT_EQ(Status().disk_progress(1).bytes_done(), 99u);
  // Starting over again and again is not progress.
  for (uint64_t second = 0; second < 19; ++second) {
    ASSERT_EQ(state().phase(), proto::STARTING);
    NotYetRestored(1, second, 100);
    Pass(absl::Seconds(1), AllTasks());
    while (links_->restores.size() > 1) links_->restores.pop_back();
  }
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("nothing was read for 20.25s"));
}

TEST_F(CoordinatorRestoreTest, AShardThatSeesAnotherDirectoryEndsTheJob_C6) {
  StartWithArchive();
  ReplacePs();
  PuppetLinks::Answer(links_->restores, 1,
                      absl::FailedPreconditionError("another directory"));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), AllOf(HasSubstr("/job:ps/task:1"),
                                      HasSubstr("another directory")));
}

TEST_F(CoordinatorRestoreTest, TheNumberOfPsMayChange_G4) {
  StartWithArchive();
  TrainStep(0);
  SaveNow();
  options_.num_ps = 3;
  Begin();
  Join(Worker(0));
  EXPECT_TRUE(Declare().status().ok());
  Join(Ps(1));
  EXPECT_THAT(links_->restores, IsEmpty());
  Join(Ps(2));
  EXPECT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0, 1, 2));
  options_.num_ps = 1;
  Begin();
  Join(Worker(0));
  EXPECT_TRUE(Declare().status().ok());
  ASSERT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0));
  for (const proto::Slice& slice : links_->restores[0].request.slices()) {
    EXPECT_EQ(slice.ps(), 0u);
  }
}

TEST_F(CoordinatorRestoreTest, AClusterThatDoesNotFitTheJournalIsRefused) {
  StartWithArchive();
  options_.num_workers = 3;
  Begin();
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(
      state().reason(),
      AllOf(HasSubstr("what was declared when the job began"),
            HasSubstr("total_num_replicas is 2"), HasSubstr("3 workers")));
  EXPECT_EQ(Status().generation(), 1u);
}

TEST_F(CoordinatorRestoreTest, AnotherJobsWorkersAreRefused) {
  StartWithArchive();
  Begin();
  Join(Worker(0));
  EXPECT_TRUE(Declare().status().ok());
  proto::RegisterRequest request = RegisterOf(Worker(1));
  request.set_job_digest("0ther");
  EXPECT_TRUE(
      Fails(Ask(request).status(), kNotReady, {"job file 0ther", "has j0b"}));
}

// ---- Warm start ----

class WarmSlotsRestoreTest : public CoordinatorRestoreTest {
 protected:
  // "w" and "b" with Adam.
  static proto::Declaration WithAdam(proto::Declaration declaration) {
    proto::Optimizer& optimizer = *declaration.mutable_optimizers(0);
    optimizer.mutable_adam()->set_beta1(0.5f);
    optimizer.mutable_adam()->set_beta2(0.5f);
    return declaration;
  }
  // A coordinator whose jobs take over slots that have seen two updates.
  void MakeWarm(const proto::Declaration& saved) {
    MakeWithArchive();
    options_.warm_start = "/warm";
    proto::Manifest& from = options_.warm_slots_from.emplace();
    *from.mutable_declaration() = saved;
    from.mutable_position()->set_updates(2);
    from.mutable_position()->set_step(7);
    Begin();
  }
  // The bias correction in the next Commit.
  float Correction(uint64_t step) {
    OfferBoth(step);
    const float correction = Commit().scalars(0).bias_correction1();
    AckCommits();
    return correction;
  }
};

TEST_F(WarmSlotsRestoreTest, UpdatesGoOnAndStepsDoNot) {
  const proto::Declaration declaration = WithAdam(MakeDeclaration());
  MakeWarm(declaration);
  for (const TaskId& task : AllTasks()) Join(task);
  Declare(declaration);
  ASSERT_THAT(links_->restores, SizeIs(2));
  for (const auto& sent : links_->restores) {
    EXPECT_EQ(sent.request.warm_start(), "/warm");
    EXPECT_TRUE(sent.request.warm_start_slots());
  }
  AckRestores();
  EXPECT_EQ(Status().global_step(), 0u);
  // 1 - 0.5^3: the third update.
  EXPECT_EQ(Correction(0), 0.875f);
}

TEST_F(WarmSlotsRestoreTest, AGenerationWithoutACheckpointDoesTheSame_G2) {
  const proto::Declaration declaration = WithAdam(MakeDeclaration());
  MakeWarm(declaration);
  StartTraining(declaration);
  EXPECT_EQ(Correction(0), 0.875f);
  ASSERT_TRUE(ReplacePs());
  EXPECT_TRUE(Restored().warm_start_slots());
  AckRestores();
  EXPECT_EQ(Correction(0), 0.875f) << "and not another two further";
}

TEST_F(WarmSlotsRestoreTest, ACheckpointKeepsTheCount_G5) {
  const proto::Declaration declaration = WithAdam(MakeDeclaration());
  MakeWarm(declaration);
  StartTraining(declaration);
  EXPECT_EQ(Correction(0), 0.875f);
  SaveNow();
  // The next coordinator does not look at the warm start any more.
  options_.warm_slots_from.reset();
  Begin();
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare(declaration).status().ok());
  EXPECT_FALSE(Restored().warm_start_slots());
  AckRestores();
  EXPECT_EQ(Correction(1), 0.9375f);
}

TEST_F(WarmSlotsRestoreTest, TicketsCountOnToo) {
  MakeWarm(WithAdam(MakeDeclaration()));
  StartTraining(WithAdam(Asynchronous(10)));
  // 1 - 0.5^3.
  const auto first = Take(Worker(0), 1);
  EXPECT_EQ(first->ticket().scalars(0).bias_correction1(), 0.875f);
}

TEST_F(WarmSlotsRestoreTest, PartOfAnAdamIsRefusedByName) {
  proto::Declaration saved = WithAdam(MakeDeclaration());
  saved.mutable_variables(1)->set_name("bias");
  MakeWarm(saved);
  for (const TaskId& task : AllTasks()) Join(task);
  Declare(WithAdam(MakeDeclaration()));
  EXPECT_THAT(links_->restores, IsEmpty());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), AllOf(HasSubstr("--warm_start_slots"),
                                      HasSubstr("\"w\" would begin with 2"),
                                      HasSubstr("\"b\" with 0")));
}

// ---- G5: what is known after a restore ----

TEST_F(CoordinatorRestoreTest, CountsAndTicketsAreTheManifests_G5) {
  StartWithArchive(Bounded(/*bound=*/3, 10, /*depth=*/3));
  Take(Worker(0), 1);  // 0
  Take(Worker(0), 2);  // 1
  Take(Worker(1), 1);  // 2
  Book(Worker(0), 2);
  SaveNow();  // 1 is spent; 0 and 2 are out
  Book(Worker(0), 1);
  Book(Worker(1), 1);
  Take(Worker(0), 3);
  ReplacePs();
  AckRestores();
  const proto::GetStatusResponse status = Status();
  EXPECT_EQ(status.global_step(), 1u);
  EXPECT_EQ(status.pushes().accepted(), 1u);
  EXPECT_EQ(status.examples(), 10u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 2)), 2u);
  EXPECT_EQ(Index(Take(Worker(1), 3)), 3u);
  // The bound counts from the beginning of the generation.
  EXPECT_EQ(Index(Take(Worker(1), 4)), 4u);
}

TEST_F(CoordinatorRestoreTest, WhatIsFinalCountsFromItsBeginning_G6) {
  StartWithArchive(Asynchronous(10));
  for (uint64_t i = 1; i <= 3; ++i) {
    Take(Worker(0), i);
    Book(Worker(0), i);
  }
  ReplacePs();
  AckRestores();
  Take(Worker(0), 1);
  Book(Worker(0), 1);
  SaveNow();
  EXPECT_EQ(Take(Worker(0), 2)->durable_through(), 1u);
}

TEST_F(CoordinatorRestoreTest, AnEvaluationOfWhatIsGoneIsForgotten_G5) {
  StartWithArchive();
  TrainStep(0);
  SaveNow();
  TrainStep(1);
  proto::ReportEvaluationRequest report;
  *report.mutable_sender() = SenderOf(Worker(0));
  report.mutable_result()->set_step(2);
  Ask(report);
  ReplacePs();
  EXPECT_FALSE(Status().has_evaluation());
}

TEST_F(CoordinatorRestoreTest, WorkersThatAreThereAreMembersOfTheNextStep_G5) {
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_lost_workers()->set_policy(proto::LostWorkers::CONTINUE);
  StartWithArchive(declaration);
  ReplacePs();
  AckRestores();
  Offer(Worker(0), 0, 0, 1);
  EXPECT_THAT(links_->commits, IsEmpty());
  EXPECT_EQ(Offer(Worker(1), 0, 1, 1)->verdict(), proto::ACCEPTED);
}

// One of them was lost for good before the coordinator was.
TEST_F(CoordinatorRestoreTest, AJobThatHadBegunGoesOnWithFewerWorkers_L5) {
  proto::Declaration declaration = MakeDeclaration();
  declaration.mutable_lost_workers()->set_policy(proto::LostWorkers::CONTINUE);
  StartWithArchive(declaration);
  TrainStep(0);
  SaveNow();
  Begin();
  Join(Ps(1));
  Join(Worker(0));
  EXPECT_TRUE(Declare(declaration).status().ok());
  AckRestores();
  EXPECT_EQ(Offer(Worker(0), 1, 0, 1)->verdict(), proto::ACCEPTED);
}

}  // namespace
}  // namespace holdfast
