// SPDX-License-Identifier: Apache-2.0

// Directories that were written once and are kept in the tree can be read, and
// what is written is identical to the byte: later programs must read these
// files.
//
// golden_delta holds a checkpoint, and the changes of a table since that one.
//
// After a change of the format and of the version in its magic,
//   bazel run //common/checkpoint:golden_test --
//     --gtest_also_run_disabled_tests --gtest_filter='*WritesIt'
// writes the directories that belong in testdata/ and prints where they are.
#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/testing/checkpoint_testing.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

const proto::CheckpointName kName = TestName(3, 1000);

// The name of a directory in testdata/, and its contents besides variables: of
// one checkpoint, or of several in a chain.
struct Golden {
  const char* name;
  std::vector<TestTable> tables;
  std::vector<TestSave> saves;
};

// All rows, from two ps; then changes, from one ps: rows that were touched,
// created, admitted and removed, one that is a candidate again, and a removed
// candidate.
std::vector<TestSave> BaseAndDelta() {
  TestSave base;
  base.name = kName;
  base.num_ps = 2;
  base.seed = 7;
  for (uint64_t id = 0; id < 40; ++id) base.entries[id] = TestRowOf(id, 990);
  for (uint64_t id = 40; id < 48; ++id) base.entries[id] = {995, 3, {}};

  TestSave delta;
  delta.name = TestName(4, 1010);
  delta.seed = 8;
  delta.entries = base.entries;
  for (const uint64_t id : {1, 40, 50}) {
    delta.entries[id] = TestRowOf(id, 1005);
  }
  delta.entries[2] = {1007, 1, {}};
  for (const uint64_t id : {3, 4, 41}) delta.entries.erase(id);
  AddRemoved(base.entries, delta.entries, &delta);
  delta.previous = kName;
  delta.chain = {kName};
  delta.writes_changes = delta.lists_removed = {0};
  return {base, delta};
}

absl::Status Write(const std::string& path, const Golden& golden,
                   FileSystem* file_system) {
  const auto directory = CheckpointDirectory::Open(path, file_system);
  if (!directory.ok()) return directory.status();
  proto::Journal journal;
  absl::Status saved;
  for (const TestSave& save : golden.saves) {
    saved.Update(SaveTestTable(*directory, save));
    *journal.add_checkpoints() = save.name;
  }
  if (golden.saves.empty()) {
    saved = SaveTestCheckpoint(*directory, kName, SmallVariables(), 2, 7,
                               golden.tables);
    *journal.add_checkpoints() = kName;
  }
  if (!saved.ok()) return saved;
  journal.set_directory_nonce(0x0123456789abcdef);
  journal.set_generation(3);
  *journal.mutable_declaration() =
      TestManifest(kName, SmallVariables(), golden.tables).declaration();
  journal.set_job_digest("job");
  journal.set_data_digest("data");
  return directory->WriteJournal(journal);
}

std::string ReadFile(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return contents.str();
}

std::string InTree(absl::string_view path) {
  return absl::StrCat("common/checkpoint/testdata/", path);
}

class GoldenTest : public ::testing::TestWithParam<Golden> {};

INSTANTIATE_TEST_SUITE_P(Without, GoldenTest,
                         ::testing::Values(Golden{"golden", {}}));
INSTANTIATE_TEST_SUITE_P(WithTables, GoldenTest,
                         ::testing::Values(Golden{"golden_tables",
                                                  SmallTables()}));
INSTANTIATE_TEST_SUITE_P(WithDelta, GoldenTest,
                         ::testing::Values(Golden{
                             "golden_delta", {{"user", 2}}, BaseAndDelta()}));

TEST_P(GoldenTest, IsRead) {
  const auto directory = CheckpointDirectory::OpenToRead(
      InTree(GetParam().name), PosixFileSystem());
  ASSERT_TRUE(directory.ok()) << directory.status();
  const auto journal = directory->ReadJournal();
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_EQ(journal->generation(), 3u);
  EXPECT_EQ(journal->directory_nonce(), 0x0123456789abcdefu);
  for (const TestSave& save : GetParam().saves) {
    const auto entries = LoadTestEntries(*directory, save.name);
    ASSERT_TRUE(entries.ok()) << entries.status();
    EXPECT_EQ(*entries, save.entries);
    const auto reader = CheckpointReader::Open(*directory, save.name);
    EXPECT_TRUE((*reader)->Verify().ok());
  }
  if (!GetParam().saves.empty()) return;
  const auto state = LoadTestCheckpoint(*directory, kName);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(*state, MakeTestState(SmallVariables(), 7, GetParam().tables));
}

TEST_P(GoldenTest, IsWrittenTheSame) {
  FaultyFileSystem disk;
  ASSERT_TRUE(Write(GetParam().name, GetParam(), &disk).ok());
  // The journal, two data files and their manifest; one data file and its
  // manifest.
  EXPECT_EQ(disk.Files().size(), GetParam().saves.empty() ? 4u : 6u);
  for (const std::string& path : disk.Files()) {
    EXPECT_EQ(disk.Contents(path), ReadFile(InTree(path))) << path;
  }
}

TEST_P(GoldenTest, DISABLED_WritesIt) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/", GetParam().name);
  ASSERT_TRUE(Write(path, GetParam(), PosixFileSystem()).ok());
  std::cout << path << std::endl;
}

}  // namespace
}  // namespace holdfast
