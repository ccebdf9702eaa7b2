// SPDX-License-Identifier: Apache-2.0

// Generations: what begins one, and what becomes of the work and the calls of
// the one before (docs/protocol/recovery.md, G1 and G6).
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_restore_testing.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CoordinatorGenerationTest : public CoordinatorRestoreTest {};

// ---- G1: what begins a generation ----

TEST_F(CoordinatorGenerationTest, APsInANewLifeBeginsAGeneration_G1_R4) {
  StartWithArchive();
  TrainStep(0);
  SaveNow();
  TrainStep(1);
  ASSERT_TRUE(ReplacePs(/*nonce=*/77));
  EXPECT_EQ(state().phase(), proto::STARTING);
  EXPECT_EQ(archive_->journal.generation(), 2u);
  ASSERT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0, 1));
  EXPECT_EQ(Restored().sender().generation(), 2u);
  EXPECT_EQ(PuppetArchive::Name(Restored().checkpoint()), "1/1");
  EXPECT_EQ(Restored().sender().receiver_nonce(), 77u) << "it is for one life";
  EXPECT_EQ(Restored().directory_nonce(), 4711u);
  EXPECT_EQ(Status().generation(), 2u);
  EXPECT_EQ(Status().global_step(), 1u) << "not the 2 of generation 1";
  EXPECT_EQ(Status().pushes().accepted(), 2u);
  AckRestores();
  EXPECT_EQ(state().phase(), proto::TRAINING);
  const proto::GetStatusResponse status = Status();
  EXPECT_EQ(status.generation(), 2u);
  EXPECT_EQ(status.global_step(), 1u);
  EXPECT_EQ(status.durable_step(), 1u);
  EXPECT_EQ(status.recovered(),
            "/job:ps/task:1 (host-of-ps1:77) has restarted without its "
            "state; resumes from step 1");
  // Step 1 once more, with sequences that begin anew.
  Offer(Worker(0), 1, 0, 1);
  EXPECT_EQ(Offer(Worker(1), 1, 1, 1)->verdict(), proto::ACCEPTED);
}

// Otherwise shards take the messages for forged ones.
TEST_F(CoordinatorGenerationTest, EveryMessageNamesTheLifeThatRegistered_P5) {
  uint64_t ps1 = 1;
  const auto expect_named = [&](const auto& messages) {
    EXPECT_THAT(messages, Not(IsEmpty()));
    for (const auto& message : messages) {
      EXPECT_EQ(message.request.sender().receiver_nonce(),
                message.ps == 0 ? kShardNonce : ps1);
    }
  };
  StartWithArchive();
  ReplacePs(ps1 = 77);
  expect_named(links_->restores);
  AckRestores();
  Offer(Worker(0), 0, 0, 1);
  Offer(Worker(1), 0, 1, 1);
  expect_named(links_->commits);
  AckCommits();
  Ask(proto::CheckpointRequest());
  expect_named(links_->saves);
  PuppetLinks::AnswerAll(links_->saves);
  expect_named(links_->awaits);
  Fail("(test)");
  expect_named(links_->ends);
}

TEST_F(CoordinatorGenerationTest,
       APsThatRegistersAgainInTheSameLifeDoesNot_G1) {
  StartWithArchive();
  Join(Ps(1), /*nonce=*/1);
  EXPECT_EQ(Status().generation(), 1u);
  EXPECT_EQ(state().phase(), proto::TRAINING);
}

TEST_F(CoordinatorGenerationTest, ACoordinatorsLifeBeginsAGeneration_G1) {
  StartWithArchive();
  TrainStep(0);
  SaveNow();
  Begin();
  EXPECT_EQ(archive_->journal.generation(), 2u);
  EXPECT_THAT(links_->restores, IsEmpty()) << "ps 1 has not joined";
  Join(Ps(1));
  // A worker that has trained need not declare.
  proto::RegisterRequest trained = RegisterOf(Worker(0));
  trained.mutable_sender()->set_generation(1);
  EXPECT_TRUE(Ask(trained).status().ok());
  EXPECT_EQ(PuppetArchive::Name(Restored().checkpoint()), "1/1");
  EXPECT_THAT(Restored().declaration().variables(), SizeIs(2));
  AckRestores();
  Join(Worker(0));
  Join(Worker(1));
  EXPECT_TRUE(Declare().status().ok());
  TrainStep(1);
  EXPECT_EQ(Status().global_step(), 2u);
}

TEST_F(CoordinatorGenerationTest, ANewLifeDuringRestoreBeginsAnother_R4) {
  StartWithArchive();
  ReplacePs(2);
  PuppetLinks::Answer(links_->restores, 1);
  ReplacePs(3);
  ASSERT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0, 0, 1));
  EXPECT_EQ(Restored().sender().generation(), 3u);
  EXPECT_EQ(Restored().sender().receiver_nonce(), 3u);
  PuppetLinks::Answer(links_->restores, 0);  // of generation 2
  PuppetLinks::Answer(links_->restores, 1);
  EXPECT_EQ(state().phase(), proto::STARTING);
  PuppetLinks::Answer(links_->restores, 0);
  EXPECT_EQ(state().phase(), proto::TRAINING);
}

// The new process listens where the old one did, and has not registered yet.
TEST_F(CoordinatorGenerationTest,
       AnotherLifeThatRefusesARestoreIsWaitedFor_R4) {
  StartWithArchive();
  ReplacePs(2);
  PuppetLinks::Answer(links_->restores, 1,
                      absl::UnavailableError("for another life"));
  EXPECT_EQ(state().phase(), proto::STARTING);
  ReplacePs(3);
  EXPECT_EQ(Restored().sender().receiver_nonce(), 3u);
}

// Whatever is in progress is abandoned, and late answers do nothing.
TEST_F(CoordinatorGenerationTest, ItTakesThePlaceOfWhatIsUnderWay_G1_R1) {
  enum Under { kCommit, kFence, kHold, kSave, kWriting, kManifest };
  for (const Under under :
       {kCommit, kFence, kHold, kSave, kWriting, kManifest}) {
    SCOPED_TRACE(under);
    const bool asynchronous = under == kFence || under == kHold;
    StartWithArchive(asynchronous ? Asynchronous(20) : MakeDeclaration());
    if (asynchronous) {
      Take(Worker(0), 1);
      Book(Worker(0), 1);
      SaveNow();
      Take(Worker(0), 2);
      Book(Worker(0), 2);
    } else {
      TrainStep(0);
      SaveNow();
      TrainStep(1);
    }
    archive_->quick = under != kManifest;
    if (under == kCommit) {
      OfferBoth(2);
    } else if (under == kFence) {
      Leave(Worker(1));
    } else {
      Ask(proto::CheckpointRequest());
      if (under >= kWriting) PuppetLinks::AnswerAll(links_->saves);
      if (under == kManifest) FinishSave();
    }
    ReplacePs();
    if (under == kManifest) {
      archive_->AnswerManifest();
      archive_->quick = true;
      archive_->AnswerRead();
    }
    AckCommits();
    PuppetLinks::AnswerAll(links_->fences);
    PuppetLinks::AnswerAll(links_->holds);
    FinishSave();
    EXPECT_EQ(archive_->Checkpoints(), "1/1");
    ASSERT_EQ(Restored().sender().generation(), 2u);
    EXPECT_EQ(PuppetArchive::Name(Restored().checkpoint()), "1/1");
    AckRestores();
    EXPECT_EQ(Status().global_step(), 1u);
    EXPECT_EQ(Status().durable_step(), 1u);
    EXPECT_EQ(Sent(), 0u);
    // A checkpoint may be taken again.
    if (asynchronous) {
      Take(Worker(0), 1);
      Book(Worker(0), 1);
    } else {
      Offer(Worker(0), 1, 0, 1);
      Offer(Worker(1), 1, 1, 1);
      AckCommits();
    }
    SaveNow();
    EXPECT_EQ(archive_->Checkpoints(), "1/1 2/2");
  }
}

// ---- G6: calls of older generations ----

TEST_F(CoordinatorGenerationTest, AnOlderGenerationChangesNothing_R1) {
  StartWithArchive();
  ReplacePs();
  AckRestores();
  proto::Sender older = SenderOf(Worker(0));
  older.set_generation(1);
  proto::ContributeRequest offer = OfferOf(Worker(0), 0, 0, 1);
  *offer.mutable_sender() = older;
  EXPECT_EQ(Contribute(offer)->verdict(), proto::ABORTED);
  EXPECT_EQ(Contribute(offer)->generation(), 2u);
  proto::TakeTicketRequest take = TakeOf(Worker(0), 1);
  *take.mutable_sender() = older;
  EXPECT_EQ(Take(take)->verdict(), proto::ABORTED);
  EXPECT_EQ(Take(take)->generation(), 2u);
  proto::ReportEvaluationRequest report;
  *report.mutable_sender() = older;
  EXPECT_TRUE(Fails(Ask(report).status(), kAborted));
  EXPECT_FALSE(Status().has_evaluation());
  // The seat is free, and the worker is here.
  Offer(Worker(1), 0, 1, 1);
  EXPECT_EQ(Offer(Worker(0), 0, 0, 1)->verdict(), proto::ACCEPTED);
}

TEST_F(CoordinatorGenerationTest, WhoHasNotHeardOfTheGenerationMayLeave) {
  StartWithArchive();
  ReplacePs();
  AckRestores();
  proto::LeaveRequest leave;
  *leave.mutable_sender() = SenderOf(Worker(0));
  leave.mutable_sender()->set_generation(1);
  leave.set_error("no data");
  EXPECT_TRUE(Ask(leave).status().ok());
  EXPECT_EQ(state().phase(), proto::FAILED);
}

TEST_F(CoordinatorGenerationTest, WhatIsParkedIsOfAGenerationThatIsOver_R1) {
  StartWithArchive(Asynchronous(1));
  Take(Worker(0), 1);
  const auto parked = Take(Worker(1), 1);
  ReplacePs();
  EXPECT_EQ(parked->verdict(), proto::ABORTED);
  EXPECT_EQ(parked->generation(), 2u);
  AckRestores();
  EXPECT_EQ(Index(Take(Worker(1), 1)), 0u);
}

// ---- Re-entrancy ----

TEST_F(CoordinatorGenerationTest, DiskAndShardsMayAnswerInsideTheCall) {
  MakeWithArchive(1, 2);
  QuickLinks links;
  const auto begin = [&] {
    links.told.clear();
    Begin(&links);
  };
  begin();
  for (const TaskId& task : AllTasks()) Join(task);
  proto::Declaration declaration = MakeDeclaration(2);
  declaration.mutable_checkpoints()->set_every_steps(1);
  ASSERT_TRUE(Declare(declaration).status().ok());
  OfferBoth(0);
  EXPECT_THAT(links.told, ElementsAre("Restore@0", "Commit 0@0", "Save 1@0",
                                      "AwaitSaved@0"));
  begin();
  for (const TaskId& task : AllTasks()) Join(task);
  // The whole beginning of a generation happens inside the call.
  ASSERT_TRUE(Declare(declaration).status().ok());
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Status().global_step(), 1u);
  Offer(Worker(0), 1, 0, 1);
  Offer(Worker(1), 1, 1, 1);
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(archive_->Checkpoints(), "2/1 3/2");
  EXPECT_TRUE(archive_->journal.finished());
}

}  // namespace
}  // namespace holdfast
