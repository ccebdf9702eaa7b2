// Directories that were written once and lie in the tree are read, and what is
// written is the same to the byte: programs of another day read these files.
//
// After a change of the format, its version in the magic rises, and
//   bazel run //common/checkpoint:golden_test --
//     --gtest_also_run_disabled_tests --gtest_filter='*WritesIt'
// says where it has written the directories that belong in testdata/.
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_testing.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/faulty_file_system.h"
#include "common/checkpoint/file_system.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

// The name of a directory in testdata/, and what it holds beside variables.
struct Golden {
  const char* name;
  std::vector<TestTable> tables;
};

const proto::CheckpointName kName = TestName(3, 1000);

absl::Status Write(const std::string& path, const Golden& golden,
                   FileSystem* file_system) {
  const auto directory = CheckpointDirectory::Open(path, file_system);
  if (!directory.ok()) return directory.status();
  absl::Status saved = SaveTestCheckpoint(*directory, kName, SmallVariables(),
                                          2, 7, golden.tables);
  if (!saved.ok()) return saved;
  proto::Journal journal;
  journal.set_directory_nonce(0x0123456789abcdef);
  journal.set_generation(3);
  *journal.mutable_declaration() =
      TestManifest(kName, SmallVariables(), golden.tables).declaration();
  *journal.add_checkpoints() = kName;
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

TEST_P(GoldenTest, IsRead) {
  const auto directory = CheckpointDirectory::OpenToRead(
      InTree(GetParam().name), PosixFileSystem());
  ASSERT_TRUE(directory.ok()) << directory.status();
  const auto journal = directory->ReadJournal();
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_EQ(journal->generation(), 3u);
  EXPECT_EQ(journal->directory_nonce(), 0x0123456789abcdefu);
  const auto state = LoadTestCheckpoint(*directory, kName);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(*state, MakeTestState(SmallVariables(), 7, GetParam().tables));
}

TEST_P(GoldenTest, IsWrittenTheSame) {
  FaultyFileSystem disk;
  ASSERT_TRUE(Write(GetParam().name, GetParam(), &disk).ok());
  EXPECT_EQ(disk.Files().size(), 4u);
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
