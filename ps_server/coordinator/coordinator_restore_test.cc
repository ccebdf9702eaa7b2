// SPDX-License-Identifier: Apache-2.0

// Generations and the journal: where a job resumes when a shard, or the
// coordinator itself, has lost its state (docs/protocol/recovery.md, G1 to G6).
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kTick = absl::Milliseconds(250);

const absl::Status& Damaged() {
  static const auto* const kStatus =
      new absl::Status(absl::DataLossError("block 3 does not fit its CRC32C"));
  return *kStatus;
}

class CoordinatorRestoreTest : public CoordinatorTest {
 protected:
  // Two ps and two workers, with a checkpoint directory.
  void StartWithArchive(
      const proto::Declaration& declaration = MakeDeclaration()) {
    MakeWithArchive();
    StartTraining(declaration);
  }
  void TrainStep(uint64_t step) {
    OfferBoth(step);
    AckCommits();
  }
  // Takes a checkpoint of the current step, and puts it on disk.
  void SaveNow() {
    Ask(proto::CheckpointRequest());
    PuppetLinks::AnswerAll(links_->holds);
    FinishSave();
  }
  // A new process takes the place of ps 1. Returns whether it has its answer.
  bool ReplacePs(uint64_t nonce = 2) {
    Leave(Ps(1));
    const auto answer = Register(Ps(1), nonce);
    if (!answer.status().ok()) return false;
    incarnations_[Ps(1)] = answer->incarnation();
    return true;
  }
  // The Restore that was sent to shard 1.
  proto::RestoreRequest Restored() const {
    for (const auto& sent : links_->restores) {
      if (sent.ps == 1) return sent.request;
    }
    ADD_FAILURE() << "nothing was sent to shard 1";
    return proto::RestoreRequest();
  }
  // The shard reports its progress.
  void NotYetRestored(uint32_t ps, uint64_t done, uint64_t total) {
    proto::RestoreResponse response;
    response.set_pending(true);
    response.mutable_progress()->set_bytes_done(done);
    response.mutable_progress()->set_bytes_total(total);
    PuppetLinks::Answer(links_->restores, ps, absl::OkStatus(), response);
  }
  void AckRestores() { PuppetLinks::AnswerAll(links_->restores); }
  // The number of messages to shards that have not been answered.
  size_t Sent() const {
    return links_->restores.size() + links_->commits.size() +
           links_->fences.size() + links_->resolves.size() +
           links_->holds.size() + links_->saves.size() + links_->awaits.size() +
           links_->ends.size();
  }
};

// ---- G1: what begins a generation ----

TEST_F(CoordinatorRestoreTest, APsInANewLifeBeginsAGeneration_G1_R4) {
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
TEST_F(CoordinatorRestoreTest, EveryMessageNamesTheLifeThatRegistered_P5) {
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

TEST_F(CoordinatorRestoreTest, APsThatRegistersAgainInTheSameLifeDoesNot_G1) {
  StartWithArchive();
  Join(Ps(1), /*nonce=*/1);
  EXPECT_EQ(Status().generation(), 1u);
  EXPECT_EQ(state().phase(), proto::TRAINING);
}

TEST_F(CoordinatorRestoreTest, ACoordinatorsLifeBeginsAGeneration_G1) {
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

TEST_F(CoordinatorRestoreTest, ANewLifeDuringRestoreBeginsAnother_R4) {
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
TEST_F(CoordinatorRestoreTest, AnotherLifeThatRefusesARestoreIsWaitedFor_R4) {
  StartWithArchive();
  ReplacePs(2);
  PuppetLinks::Answer(links_->restores, 1,
                      absl::UnavailableError("for another life"));
  EXPECT_EQ(state().phase(), proto::STARTING);
  ReplacePs(3);
  EXPECT_EQ(Restored().sender().receiver_nonce(), 3u);
}

// Whatever is in progress is abandoned, and late answers do nothing.
TEST_F(CoordinatorRestoreTest, ItTakesThePlaceOfWhatIsUnderWay_G1_R1) {
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

// A checkpoint that is being written to the journal is either in it or not.
TEST_F(CoordinatorRestoreTest, ItGoesOnFromWhatTheJournalSaysInTheEnd_G2) {
  StartWithArchive();
  TrainStep(0);
  archive_->quick = false;
  Ask(proto::CheckpointRequest());
  FinishSave();
  archive_->AnswerManifest();
  ASSERT_THAT(archive_->journals, SizeIs(1));
  ReplacePs();
  EXPECT_THAT(archive_->reads, IsEmpty()) << "the journal is being written";
  archive_->AnswerJournal(absl::UnavailableError("try again"));
  EXPECT_THAT(archive_->reads, IsEmpty());
  Pass(absl::Seconds(1), AllTasks());
  archive_->AnswerJournal();
  ASSERT_THAT(archive_->reads, SizeIs(1));
  archive_->AnswerRead();
  archive_->AnswerJournal();
  EXPECT_EQ(PuppetArchive::Name(Restored().checkpoint()), "1/1");
}

// ---- G2: from where ----

TEST_F(CoordinatorRestoreTest, WithoutACheckpointItBeginsAtStepZero_G2) {
  StartWithArchive(ByTicket(2, 2, 8));
  for (const uint32_t w : {0, 1}) Take(Worker(w), 1);
  TrainStep(0);
  ReplacePs();
  EXPECT_FALSE(Restored().has_checkpoint());
  AckRestores();
  EXPECT_EQ(Status().global_step(), 0u);
  EXPECT_EQ(Status().pushes().accepted(), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 0u);
}

TEST_F(CoordinatorRestoreTest, ADamagedCheckpointIsTakenOffTheJournal_G2) {
  StartWithArchive();
  for (uint64_t step = 0; step < 2; ++step) {
    TrainStep(step);
    SaveNow();
  }
  TrainStep(2);
  archive_->quick = false;
  ReplacePs();
  EXPECT_EQ(PuppetArchive::Name(archive_->reads[0].request), "1/2");
  archive_->AnswerRead(Damaged());
  archive_->AnswerJournal();
  EXPECT_EQ(archive_->Checkpoints(), "1/1");
  EXPECT_THAT(archive_->set_aside, ElementsAre("1/2"));
  EXPECT_EQ(archive_->journal.generation(), 1u);
  archive_->AnswerRead();
  EXPECT_EQ(Sent(), 0u);
  archive_->AnswerJournal();
  EXPECT_EQ(PuppetArchive::Name(Restored().checkpoint()), "1/1");
  AckRestores();
  EXPECT_EQ(Status().global_step(), 1u);
}

TEST_F(CoordinatorRestoreTest, WhenAllAreDamagedTheJobFails_G2) {
  for (const bool at_start : {false, true}) {
    SCOPED_TRACE(at_start);
    StartWithArchive();
    TrainStep(0);
    SaveNow();
    archive_->complete.clear();
    at_start ? Begin() : (void)ReplacePs();
    EXPECT_EQ(state().phase(), proto::FAILED);
    EXPECT_THAT(state().reason(),
                AllOf(HasSubstr("checkpoint of step 1 (generation 1)"),
                      HasSubstr("none before it")));
    EXPECT_TRUE(
        Fails(Register(Worker(0), 9).status(), kAborted, {"none before it"}));
  }
}

TEST_F(CoordinatorRestoreTest, ADiskThatDoesNotAnswerWellIsAskedAgain_G2) {
  StartWithArchive();
  TrainStep(0);
  SaveNow();
  archive_->quick = false;
  ReplacePs();
  archive_->AnswerRead(absl::UnavailableError("stale file handle"));
  EXPECT_THAT(archive_->reads, IsEmpty());
  Pass(absl::Seconds(1), AllTasks());
  archive_->quick = true;
  archive_->AnswerRead();
  EXPECT_EQ(PuppetArchive::Name(Restored().checkpoint()), "1/1");
}

// The directory can be read, but not this: a bad sector.
TEST_F(CoordinatorRestoreTest, AManifestThatStaysUnreadableIsDamaged_G2) {
  StartWithArchive();
  for (uint64_t step = 0; step < 2; ++step) {
    TrainStep(step);
    SaveNow();
  }
  archive_->quick = false;
  ReplacePs();
  for (int second = 0; second < 10; ++second) {
    archive_->AnswerRead(absl::UnknownError("MANIFEST: input/output error"));
    EXPECT_THAT(archive_->set_aside, IsEmpty());
    Pass(absl::Seconds(1), {Worker(0), Worker(1)});
  }
  EXPECT_EQ(Status().waiting_for(),
            "the journal of /job:ps/task:0: MANIFEST: input/output error");
  archive_->quick = true;
  archive_->AnswerRead(absl::UnknownError("MANIFEST: input/output error"));
  EXPECT_THAT(archive_->set_aside, ElementsAre("1/2"));
  EXPECT_EQ(archive_->Checkpoints(), "1/1");
  EXPECT_EQ(PuppetArchive::Name(Restored().checkpoint()), "1/1");
}

// ---- G3: the journal first ----

TEST_F(CoordinatorRestoreTest, NothingCarriesWhatTheJournalDoesNotSay_R5) {
  StartWithArchive();
  TrainStep(0);
  SaveNow();
  proto::ContributeRequest request = OfferOf(Worker(0), 1, 0, 2);
  request.set_wait_ms(30000);
  const auto offer = Contribute(request);
  const auto renewal = Renew(Worker(0), 3000);
  archive_->quick = false;
  Leave(Ps(1));
  const auto ps = Register(Ps(1), 2);
  const auto placement = GetPlacement(30000);
  Leave(Worker(1));
  const auto newcomer = Register(Worker(1), 2);
  const auto expect_nothing = [&](const char* when) {
    SCOPED_TRACE(when);
    EXPECT_EQ(Sent(), 0u);
    EXPECT_FALSE(ps.came());
    EXPECT_FALSE(newcomer.came());
    EXPECT_FALSE(placement.came());
    EXPECT_FALSE(offer.came());
    EXPECT_FALSE(renewal.came());
    EXPECT_FALSE(Register(Worker(0), 1).came());
    EXPECT_FALSE(Offer(Worker(0), 1, 0, 3).came());
    EXPECT_EQ(Renew(Worker(0))->generation(), 1u);
    EXPECT_EQ(GetPlacement(0)->generation(), 1u);
    EXPECT_EQ(Declare()->generation(), 1u);
    EXPECT_EQ(Status().generation(), 1u);
    EXPECT_EQ(generation(), Generation(1));
  };
  expect_nothing("while the manifest is read");
  archive_->AnswerRead();
  ASSERT_THAT(archive_->journals, SizeIs(1));
  EXPECT_EQ(archive_->journals[0].request.generation(), 2u);
  expect_nothing("while the journal is written");
  archive_->AnswerJournal(absl::UnavailableError("disk full"));
  expect_nothing("when it could not be written");
  EXPECT_EQ(Status().checkpoint_error(),
            "the journal cannot be written: disk full");
  Pass(absl::Seconds(1), {Worker(0)});
  ASSERT_THAT(archive_->journals, SizeIs(1));
  archive_->AnswerJournal();
  EXPECT_EQ(Status().checkpoint_error(), "");
  EXPECT_EQ(ps->generation(), 2u);
  EXPECT_TRUE(IsNotYet(newcomer)) << "it may have died";
  EXPECT_EQ(Register(Worker(1), 2)->generation(), 2u);
  EXPECT_EQ(renewal->generation(), 2u);
  EXPECT_EQ(offer->verdict(), proto::ABORTED);
  EXPECT_EQ(offer->generation(), 2u);
  EXPECT_EQ(Restored().sender().generation(), 2u);
}

TEST_F(CoordinatorRestoreTest, ACoordinatorsFirstWordIsInTheJournal_R5) {
  StartWithArchive();
  TrainStep(0);
  SaveNow();
  archive_->quick = false;
  Begin();
  const auto ps = Register(Ps(1));
  const auto worker = Register(Worker(0));
  EXPECT_EQ(Status().generation(), 1u);
  archive_->AnswerRead();
  EXPECT_FALSE(ps.came() || worker.came());
  EXPECT_EQ(Sent(), 0u);
  archive_->AnswerJournal();
  EXPECT_TRUE(IsNotYet(ps) && IsNotYet(worker));
  EXPECT_EQ(Register(Ps(1))->generation(), 2u);
  Join(Worker(0));
  EXPECT_TRUE(Declare().status().ok());
  EXPECT_EQ(Restored().sender().generation(), 2u);
}

TEST_F(CoordinatorRestoreTest, AJournalThatCannotBeWrittenEndsTheJob_G3) {
  StartWithArchive();
  archive_->quick = false;
  ReplacePs();
  const absl::Time begun = clock_.Now();
  while (state().phase() == proto::STARTING &&
         clock_.Now() - begun < 2 * recovery_timeout_) {
    if (!archive_->journals.empty()) {
      archive_->AnswerJournal(absl::UnavailableError("disk full"));
    }
    Pass(absl::Seconds(1), {Worker(0), Worker(1)});
  }
  EXPECT_EQ(clock_.Now() - begun, recovery_timeout_ + absl::Seconds(1));
  EXPECT_EQ(state().reason(),
            "/job:ps/task:0 cannot write its journal: disk full");
  EXPECT_EQ(Status().generation(), 1u);
}

TEST_F(CoordinatorRestoreTest, WhoHasLostTheDirectoryEndsTheJobAtOnce_G3) {
  StartWithArchive();
  archive_->quick = false;
  ReplacePs();
  archive_->AnswerJournal(absl::AbortedError("another has written"));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("another has written"));
  EXPECT_THAT(links_->restores, IsEmpty());
  // Later callers are not kept waiting for a generation that does not come.
  EXPECT_EQ(Offer(Worker(0), 0, 0, 1)->verdict(), proto::ABORTED);
}

TEST_F(CoordinatorRestoreTest, ADiskThatHangsEndsTheJob_G3) {
  StartWithArchive();
  archive_->quick = false;
  ReplacePs();
  for (absl::Duration passed; passed < recovery_timeout_;
       passed += absl::Seconds(1)) {
    Register(Ps(1), 2);  // asks again
    Pass(absl::Seconds(1), {Worker(0), Worker(1)});
  }
  EXPECT_EQ(state().phase(), proto::STARTING);
  Pass(kTick, {Worker(0), Worker(1)});
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_EQ(state().reason(),
            "the job did not recover within 5m: waited for the journal of "
            "/job:ps/task:0");
}

TEST_F(CoordinatorRestoreTest, VariablesWaitForTheJournalToo_G3) {
  MakeWithArchive();
  for (const TaskId& task : AllTasks()) Join(task);
  archive_->quick = false;
  ASSERT_TRUE(Declare().status().ok());
  EXPECT_EQ(Sent(), 0u);
  archive_->AnswerJournal();
  EXPECT_EQ(archive_->journal.job_digest(), "j0b");
  EXPECT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0, 1));
}

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

// ---- G6: calls of older generations ----

TEST_F(CoordinatorRestoreTest, AnOlderGenerationChangesNothing_R1) {
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

TEST_F(CoordinatorRestoreTest, WhoHasNotHeardOfTheGenerationMayLeave) {
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

TEST_F(CoordinatorRestoreTest, WhatIsParkedIsOfAGenerationThatIsOver_R1) {
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

TEST_F(CoordinatorRestoreTest, DiskAndShardsMayAnswerInsideTheCall) {
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
