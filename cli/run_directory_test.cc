// SPDX-License-Identifier: Apache-2.0
#include "cli/run_directory.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::string ReadText(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDirectoryTest() { std::filesystem::remove_all(path_); }

  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/a/run");
};

TEST_F(RunDirectoryTest, IsMadeAndWritten) {
  auto directory = RunDirectory::Open(path_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  ASSERT_TRUE((*directory)->WriteClusterSpec("{}").ok());
  ASSERT_TRUE((*directory)->WritePid("ps-0", 123).ok());
  EXPECT_EQ(ReadText(path_ + "/cluster.json"), "{}");
  EXPECT_EQ(ReadText(path_ + "/ps-0.pid"), "123\n");
  EXPECT_EQ((*directory)->LogPath("worker-1"), path_ + "/worker-1.log");
}

TEST_F(RunDirectoryTest, KeepsWhatARunBeforeHasLeft) {
  std::filesystem::create_directories(path_);
  for (const char* name :
       {"ps-0.log", "worker-12.pid", "encrypted", "cluster.json", "result.json",
        "notes.txt", "myps-0.log"}) {
    WriteText(absl::StrCat(path_, "/", name), "old");
  }
  auto directory = RunDirectory::Open(path_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_THAT(Files(),
              UnorderedElementsAre("ps-0.log", "cluster.json", "result.json",
                                   "notes.txt", "myps-0.log"));
  EXPECT_EQ(ReadText(path_ + "/ps-0.log"), "old");
}

TEST_F(RunDirectoryTest, LeavesLogsButNoMarksOfARunBehind) {
  auto directory = RunDirectory::Open(path_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  ASSERT_TRUE((*directory)->WritePid("ps-0", 123).ok());
  EXPECT_FALSE(RunDirectory::IsEncrypted(path_));
  ASSERT_TRUE((*directory)->MarkEncrypted().ok());
  EXPECT_TRUE(RunDirectory::IsEncrypted(path_));
  WriteText((*directory)->LogPath("ps-0"), "said");
  directory->reset();
  EXPECT_THAT(Files(), UnorderedElementsAre("ps-0.log"));
}

TEST_F(RunDirectoryTest, IsUsedByOneRunAtATime) {
  auto first = RunDirectory::Open(path_);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = RunDirectory::Open(path_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(second.status().message(), HasSubstr(path_));
  first->reset();
  EXPECT_TRUE(RunDirectory::Open(path_).ok());
}

TEST_F(RunDirectoryTest, NamesTheFolderThatCannotBe) {
  const std::string file = absl::StrCat(::testing::TempDir(), "/file");
  WriteText(file, "");
  EXPECT_THAT(RunDirectory::Open(file + "/run").status().message(),
              HasSubstr(file + "/run"));
}

TEST(LogHeaderTest, TellsDateProgramAndArguments) {
  EXPECT_THAT(LogHeader(absl::FromUnixSeconds(1700000000), "bin/ps_server",
                        {"--task_index=0", "--lease=1s"}),
              ::testing::MatchesRegex(
                  "==== 2023-11-1[45]T[0-9:]*[-+][0-9:]* bin/ps_server "
                  "--task_index=0 --lease=1s\n"));
}

TEST(LastLinesTest, Table) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/lines");
  const struct {
    std::string text;
    int lines;
    std::string last;
  } kCases[] = {{"", 2, ""},
                {"a", 2, "a"},
                {"a\n", 2, "a"},
                {"a\nb\nc\n", 2, "b\nc"},
                {"a\nb\nc", 2, "b\nc"},
                {"a\n\nc\n", 2, "\nc"},
                {std::string(100000, 'x') + "\nend\n", 1, "end"},
                {"a\n==== b\nc\nd\n", 5, "c\nd"},
                {"a\n==== b\n", 5, ""}};
  for (const auto& test : kCases) {
    WriteText(path, test.text);
    EXPECT_EQ(LastLines(path, test.lines), test.last);
  }
  EXPECT_EQ(LastLines("/no/such/file", 2), "");
}

}  // namespace
}  // namespace holdfast
