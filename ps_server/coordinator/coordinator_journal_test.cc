// SPDX-License-Identifier: Apache-2.0

// The journal: from which checkpoint a generation resumes, and what waits until
// the journal is written (docs/protocol/recovery.md, G2 and G3).
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

class CoordinatorJournalTest : public CoordinatorRestoreTest {};

// ---- G2: from where ----

// A checkpoint that is being written to the journal is either in it or not.
TEST_F(CoordinatorJournalTest, ItGoesOnFromWhatTheJournalSaysInTheEnd_G2) {
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

TEST_F(CoordinatorJournalTest, WithoutACheckpointItBeginsAtStepZero_G2) {
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

TEST_F(CoordinatorJournalTest, ADamagedCheckpointIsTakenOffTheJournal_G2) {
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

TEST_F(CoordinatorJournalTest, WhenAllAreDamagedTheJobFails_G2) {
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

TEST_F(CoordinatorJournalTest, ADiskThatDoesNotAnswerWellIsAskedAgain_G2) {
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
TEST_F(CoordinatorJournalTest, AManifestThatStaysUnreadableIsDamaged_G2) {
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

TEST_F(CoordinatorJournalTest, NothingCarriesWhatTheJournalDoesNotSay_R5) {
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

TEST_F(CoordinatorJournalTest, ACoordinatorsFirstWordIsInTheJournal_R5) {
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

TEST_F(CoordinatorJournalTest, AJournalThatCannotBeWrittenEndsTheJob_G3) {
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

TEST_F(CoordinatorJournalTest, WhoHasLostTheDirectoryEndsTheJobAtOnce_G3) {
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

TEST_F(CoordinatorJournalTest, ADiskThatHangsEndsTheJob_G3) {
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

TEST_F(CoordinatorJournalTest, VariablesWaitForTheJournalToo_G3) {
  MakeWithArchive();
  for (const TaskId& task : AllTasks()) Join(task);
  archive_->quick = false;
  ASSERT_TRUE(Declare().status().ok());
  EXPECT_EQ(Sent(), 0u);
  archive_->AnswerJournal();
  EXPECT_EQ(archive_->journal.job_digest(), "j0b");
  EXPECT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0, 1));
}

}  // namespace
}  // namespace holdfast
