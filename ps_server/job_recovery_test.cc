// SPDX-License-Identifier: Apache-2.0
#include "ps_server/job_recovery.h"

#include "absl/status/status.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gtest/gtest.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {
namespace {

class JobRecoveryTest : public ::testing::Test {
 protected:
  JobRecoveryTest() {
    journal_.set_directory_nonce(77);
    journal_.set_generation(3);
    history_.set_directory_nonce(77);
    history_.add_events()->set_number(9);
  }

  FaultyFileSystem disk_;
  const CheckpointDirectory directory_ =
      *CheckpointDirectory::Open("checkpoints", &disk_);
  proto::Journal journal_;
  proto::History history_;
};

TEST_F(JobRecoveryTest, AnEmptyDirectoryGetsAJournalOfItsOwn) {
  const auto first = RecoverJournal(directory_, /*warm_start=*/"");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->generation(), 0);
  EXPECT_NE(first->directory_nonce(), 0);
  const auto second = RecoverJournal(directory_, /*warm_start=*/"");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(first->directory_nonce(), second->directory_nonce());
}

TEST_F(JobRecoveryTest, AJournalIsTakenUpAndWarmStartIsNotLookedAt) {
  ASSERT_TRUE(directory_.WriteJournal(journal_).ok());
  const auto journal = RecoverJournal(directory_, "nowhere");
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_EQ(journal->generation(), 3);
  EXPECT_EQ(journal->directory_nonce(), 77);
}

TEST_F(JobRecoveryTest, CheckpointsWithoutAJournalAreNotTakenUp) {
  proto::Manifest manifest;
  manifest.mutable_name()->set_generation(1);
  ASSERT_TRUE(directory_.WriteManifest(manifest).ok());
  EXPECT_EQ(RecoverJournal(directory_, "").status(),
            absl::FailedPreconditionError(
                "checkpoints holds 1 checkpoints and no journal: use another "
                "directory (and --warm_start, to begin with the values of one "
                "of them)"));
}

TEST_F(JobRecoveryTest, AWarmStartThatIsNotThereIsNamed) {
  const absl::Status status =
      RecoverJournal(directory_, "gone/g0001-step00000020").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_EQ(status.message().substr(0, 38),
            "--warm_start=gone/g0001-step00000020: ");
}

TEST_F(JobRecoveryTest, SlotsOfAWarmStartAreForAJobWithoutACheckpoint) {
  const std::string nowhere = "gone/g0001-step00000020";
  EXPECT_EQ(FindWarmSlots(directory_, journal_, nowhere).status().code(),
            absl::StatusCode::kNotFound);
  proto::Manifest manifest;
  manifest.mutable_name()->set_generation(1);
  manifest.mutable_name()->set_step(20);
  manifest.mutable_position()->set_updates(19);
  ASSERT_TRUE(directory_.WriteManifest(manifest).ok());
  const auto found =
      FindWarmSlots(directory_, journal_, directory_.Folder(manifest.name()));
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->position().updates(), 19u);
  journal_.add_checkpoints()->set_step(3);
  const auto unneeded = FindWarmSlots(directory_, journal_, nowhere);
  ASSERT_TRUE(unneeded.ok()) << unneeded.status();
  EXPECT_FALSE(unneeded->has_value());
}

TEST_F(JobRecoveryTest, AHistoryIsTakenUpWithItsJournal) {
  ASSERT_TRUE(directory_.WriteHistory(history_).ok());
  const proto::History history = RecoverHistory(directory_, journal_, "ps");
  ASSERT_EQ(history.events_size(), 1);
  EXPECT_EQ(history.events(0).number(), 9);
}

TEST_F(JobRecoveryTest, AHistoryThatIsLostOrForeignIsLeftOut) {
  EXPECT_EQ(RecoverHistory(directory_, journal_, "ps").events_size(), 0);
  history_.set_directory_nonce(78);
  ASSERT_TRUE(directory_.WriteHistory(history_).ok());
  EXPECT_EQ(RecoverHistory(directory_, journal_, "ps").events_size(), 0);
}

}  // namespace
}  // namespace holdfast
