// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/directory.h"

#include <cstdint>
#include <limits>
#include <string>

#include "common/checkpoint/testing/checkpoint_testing.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

proto::Journal MakeJournal(uint64_t generation) {
  proto::Journal journal;
  journal.set_directory_nonce(77);
  journal.set_generation(generation);
  *journal.add_checkpoints() = TestName(1, 1000);
  return journal;
}

class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest()
      : directory_(*CheckpointDirectory::Open("jobs/dir", &disk_)) {}

  FaultyFileSystem disk_;
  CheckpointDirectory directory_;
};

TEST(FolderNameTest, IsPaddedAndParsedBack) {
  EXPECT_EQ(FolderName(TestName(1, 1000)), "g0001-step00001000");
  EXPECT_EQ(FolderName(TestName(12345, 123456789)), "g12345-step123456789");
  for (const uint64_t number :
       {uint64_t{0}, uint64_t{9999}, uint64_t{100000000},
        std::numeric_limits<uint64_t>::max()}) {
    const auto name = ParseFolderName(FolderName(TestName(number, number)));
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(name->generation(), number);
    EXPECT_EQ(name->step(), number);
  }
}

TEST(FolderNameTest, OtherFormsAreRefused) {
  for (const char* folder : {"",
                             "g",
                             "-step",
                             "g-step",
                             "JOURNAL",
                             "g0001-step",
                             "g-step00001000",
                             "g1-step00001000",
                             "g0001-step1000",
                             "g00001-step00001000",
                             "g0001-step000001000",
                             "g+001-step00001000",
                             "g0001-step+0001000",
                             "g 001-step00001000",
                             "g0001-step00001000 ",
                             "G0001-step00001000",
                             "g0001-step00001000.tmp",
                             "g0001-step00001000-step00001000",
                             "xg0001-step00001000",
                             "g0001step00001000",
                             "g00a1-step00001000",
                             "g18446744073709551616-step00001000",
                             "../g0001-step00001000"}) {
    EXPECT_EQ(ParseFolderName(folder).status().code(),
              absl::StatusCode::kInvalidArgument)
        << folder;
  }
}

TEST_F(DirectoryTest, IsMadeEmptyAndOpenedToReadOnlyWhereItIs) {
  EXPECT_THAT(*disk_.List("jobs/dir"), ElementsAre());
  EXPECT_TRUE(CheckpointDirectory::OpenToRead("jobs/dir", &disk_).ok());
  EXPECT_EQ(
      CheckpointDirectory::OpenToRead("jobs/other", &disk_).status().code(),
      absl::StatusCode::kNotFound);
}

TEST_F(DirectoryTest, JournalIsReplacedAsAWhole) {
  EXPECT_EQ(directory_.ReadJournal().status().code(),
            absl::StatusCode::kNotFound);
  for (const uint64_t generation : {1, 2}) {
    const proto::Journal journal = MakeJournal(generation);
    ASSERT_TRUE(directory_.WriteJournal(journal).ok());
    const auto read = directory_.ReadJournal();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(MessageDifferencer::Equals(*read, journal));
  }
  EXPECT_THAT(disk_.Files(), ElementsAre("jobs/dir/JOURNAL"));
}

TEST_F(DirectoryTest, HistoryIsReplacedAsAWhole) {
  EXPECT_EQ(directory_.ReadHistory().status().code(),
            absl::StatusCode::kNotFound);
  proto::History history;
  history.set_directory_nonce(77);
  for (const uint64_t step : {1, 2}) {
    history.add_points()->set_step(step);
    ASSERT_TRUE(directory_.WriteHistory(history).ok());
    const auto read = directory_.ReadHistory();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(MessageDifferencer::Equals(*read, history));
  }
  EXPECT_THAT(disk_.Files(), ElementsAre("jobs/dir/HISTORY"));
  // If there is no room for the next history, this one stays.
  disk_.SetSpace(10);
  history.add_points()->set_step(3);
  EXPECT_EQ(directory_.WriteHistory(history).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(directory_.ReadHistory()->points_size(), 2);
  // It is not a checkpoint.
  EXPECT_THAT(*directory_.List(), ElementsAre());

  std::string contents = disk_.Contents("jobs/dir/HISTORY");
  contents.back() ^= 1;
  disk_.SetContents("jobs/dir/HISTORY", contents);
  EXPECT_EQ(directory_.ReadHistory().status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_THAT(directory_.ReadHistory().status().message(),
              HasSubstr("jobs/dir/HISTORY"));
}

TEST_F(DirectoryTest, ManifestIsTestedAgainstFolderAndFiles) {
  const proto::CheckpointName name = TestName(1, 1000);
  EXPECT_EQ(directory_.ReadManifest(name).status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(
      SaveTestCheckpoint(directory_, name, SmallVariables(), 2, 1).ok());
  const auto manifest = directory_.ReadManifest(name);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->files_size(), 2);

  // A file of another size; none.
  const std::string file = "jobs/dir/g0001-step00001000/ps-0001-of-0002";
  const std::string contents = disk_.Contents(file);
  disk_.SetContents(file, contents + "x");
  absl::Status status = directory_.ReadManifest(name).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(file));
  ASSERT_TRUE(disk_.Remove(file).ok());
  status = directory_.ReadManifest(name).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(file));

  // Names that lead elsewhere, or twice to the same.
  for (const char* bad : {"", ".", "..", "../../JOURNAL", "ps-0000-of-0002"}) {
    proto::Manifest other = *manifest;
    other.mutable_files(1)->set_name(bad);
    ASSERT_TRUE(directory_.WriteManifest(other).ok());
    EXPECT_EQ(directory_.ReadManifest(name).status().code(),
              absl::StatusCode::kDataLoss)
        << bad;
  }
}

TEST_F(DirectoryTest, ListsByNumberAndKnowsWhatIsNoCheckpoint) {
  for (const auto& [generation, step] :
       {std::pair{10000, 5}, {2, 100000000}, {2, 20000000}, {1, 7}}) {
    ASSERT_TRUE(
        disk_.MakeFolder(directory_.Folder(TestName(generation, step))).ok());
  }
  ASSERT_TRUE(directory_.WriteJournal(MakeJournal(1)).ok());
  ASSERT_TRUE(disk_.MakeFolder("jobs/dir/g0001-step7").ok());
  std::vector<std::string> names;
  const auto listed = directory_.List();
  ASSERT_TRUE(listed.ok()) << listed.status();
  for (const auto& name : *listed) names.push_back(FolderName(name));
  EXPECT_THAT(names, ElementsAre("g0001-step00000007", "g0002-step20000000",
                                 "g0002-step100000000", "g10000-step00000005"));
}

TEST_F(DirectoryTest, RemovesAndLeavesOthersAlone) {
  for (const uint64_t step : {1, 2}) {
    ASSERT_TRUE(SaveTestCheckpoint(directory_, TestName(1, step),
                                   SmallVariables(), 2, step)
                    .ok());
  }
  EXPECT_TRUE(directory_.Remove(TestName(1, 1)).ok());
  EXPECT_TRUE(directory_.Remove(TestName(1, 1)).ok());
  EXPECT_EQ(directory_.List()->size(), 1u);
  EXPECT_EQ(*LoadTestCheckpoint(directory_, TestName(1, 2)),
            MakeTestState(SmallVariables(), 2));

  // Without a manifest, and with the leftovers of an attempt.
  const std::string folder = directory_.Folder(TestName(1, 2));
  ASSERT_TRUE(disk_.Remove(folder + "/MANIFEST").ok());
  ASSERT_TRUE(disk_.Create(folder + "/ps-0000-of-0002.tmp").ok());
  EXPECT_TRUE(directory_.Remove(TestName(1, 2)).ok());
  EXPECT_TRUE(directory_.List()->empty());
}

TEST_F(DirectoryTest, WhatIsSetAsideIsKeptAndNoCheckpointAnyMore) {
  const proto::CheckpointName name = TestName(1, 7);
  for (const char* folder : {"jobs/dir/g0001-step00000007.set-aside",
                             "jobs/dir/g0001-step00000007.set-aside-2"}) {
    ASSERT_TRUE(
        SaveTestCheckpoint(directory_, name, SmallVariables(), 2, 1).ok());
    const auto aside = directory_.SetAside(name);
    ASSERT_TRUE(aside.ok()) << aside.status();
    EXPECT_EQ(*aside, folder);
    EXPECT_TRUE(disk_.Open(absl::StrCat(folder, "/MANIFEST")).ok());
    EXPECT_TRUE(directory_.List()->empty());
  }
  EXPECT_EQ(directory_.SetAside(name).status().code(),
            absl::StatusCode::kNotFound);
  disk_.Crash(FaultyFileSystem::Unsynced::kLost);
  EXPECT_TRUE(
      disk_.Open("jobs/dir/g0001-step00000007.set-aside/MANIFEST").ok());
}

TEST_F(DirectoryTest, LockIsHeldByOneCoordinator) {
  auto lock = directory_.Lock("ps 0 on host-a");
  ASSERT_TRUE(lock.ok()) << lock.status();
  const auto second = directory_.Lock("ps 0 on host-b");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(second.status().message(), HasSubstr("ps 0 on host-a"));
  lock->reset();
  EXPECT_TRUE(directory_.Lock("ps 0 on host-b").ok());
}

}  // namespace
}  // namespace holdfast
