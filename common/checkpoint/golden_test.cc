// A directory that was written once and lies in the tree is read, and what is
// written is the same to the byte: programs of another day read these files.
//
// After a change of the format, its version in the magic rises, and
//   bazel run //common/checkpoint:golden_test --
//     --gtest_also_run_disabled_tests --gtest_filter='*WritesIt'
// says where it has written the directory that belongs in testdata/.
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_testing.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/faulty_file_system.h"
#include "common/checkpoint/file_system.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

constexpr char kGolden[] = "common/checkpoint/testdata/golden";

const proto::CheckpointName kName = TestName(3, 1000);

absl::Status Write(const std::string& path, FileSystem* file_system) {
  const auto directory = CheckpointDirectory::Open(path, file_system);
  if (!directory.ok()) return directory.status();
  absl::Status saved =
      SaveTestCheckpoint(*directory, kName, SmallVariables(), 2, 7);
  if (!saved.ok()) return saved;
  proto::Journal journal;
  journal.set_directory_nonce(0x0123456789abcdef);
  journal.set_generation(3);
  *journal.mutable_declaration() =
      TestManifest(kName, SmallVariables()).declaration();
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

TEST(GoldenTest, IsRead) {
  const auto directory =
      CheckpointDirectory::OpenToRead(kGolden, PosixFileSystem());
  ASSERT_TRUE(directory.ok()) << directory.status();
  const auto journal = directory->ReadJournal();
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_EQ(journal->generation(), 3u);
  EXPECT_EQ(journal->directory_nonce(), 0x0123456789abcdefu);
  const auto state = LoadTestCheckpoint(*directory, kName);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(*state, MakeTestState(SmallVariables(), 7));
}

TEST(GoldenTest, IsWrittenTheSame) {
  FaultyFileSystem disk;
  ASSERT_TRUE(Write("golden", &disk).ok());
  EXPECT_EQ(disk.Files().size(), 4u);
  for (const std::string& path : disk.Files()) {
    EXPECT_EQ(disk.Contents(path),
              ReadFile(absl::StrCat("common/checkpoint/testdata/", path)))
        << path;
  }
}

TEST(GoldenTest, DISABLED_WritesIt) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/golden");
  ASSERT_TRUE(Write(path, PosixFileSystem()).ok());
  std::cout << path << std::endl;
}

}  // namespace
}  // namespace holdfast
