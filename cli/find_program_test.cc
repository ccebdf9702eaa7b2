// SPDX-License-Identifier: Apache-2.0
#include "cli/find_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& given) {
  const auto found = FindProgram("ps_binary", given, "ps_server", "ps_server");
  EXPECT_FALSE(found.ok());
  return std::string(found.status().message());
}

std::string MakeFile(const std::string& name, mode_t mode) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << "#!/bin/true\n";
  EXPECT_EQ(chmod(path.c_str(), mode), 0);
  return path;
}

TEST(FindProgramTest, TakesTheOneThatIsGiven) {
  const std::string path = MakeFile("program", 0755);
  const auto found = FindProgram("ps_binary", path, "ps_server", "ps_server");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, path);
}

TEST(FindProgramTest, SaysWhyAFileCannotBeRun) {
  const std::string text = MakeFile("text", 0644);
  EXPECT_EQ(ErrorOf(text),
            "cannot run " + text +
                ": not executable; --ps_binary sets the program's path");
  EXPECT_THAT(ErrorOf(text + ".none"), HasSubstr("No such file"));
  EXPECT_THAT(ErrorOf(text + "/none"), HasSubstr("Not a directory"));
  EXPECT_THAT(ErrorOf(testing::TempDir()), HasSubstr("not a file"));
}

TEST(FindProgramTest, SaysThatAFolderCannotBeRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every folder";
  const std::string folder = testing::TempDir() + "/closed";
  std::filesystem::create_directory(folder);
  MakeFile("closed/program", 0755);
  ASSERT_EQ(chmod(folder.c_str(), 0), 0);
  EXPECT_THAT(ErrorOf(folder + "/program"), HasSubstr("Permission denied"));
  chmod(folder.c_str(), 0755);
}

// Both places: next to this program, and in the build's output.
TEST(FindProgramTest, SaysWhereItHasLooked) {
  const auto found = FindProgram("ps_binary", "", "a_folder", "a_program");
  ASSERT_FALSE(found.ok());
  const std::string message(found.status().message());
  EXPECT_THAT(message, HasSubstr("/a_program: No such file or directory, nor"));
  EXPECT_THAT(message, HasSubstr("/a_folder/a_program: No such file"));
}

TEST(FindCommandTest, LooksWhereAShellDoes) {
  const std::string folder = testing::TempDir() + "/path";
  std::filesystem::create_directory(folder);
  MakeFile("path/trains", 0755);
  MakeFile("path/text", 0644);
  setenv("PATH", ("/none:" + folder).c_str(), 1);
  EXPECT_EQ(FindCommand("trains").value(), folder + "/trains");
  EXPECT_EQ(FindCommand(folder + "/trains").value(), folder + "/trains");

  const auto text = FindCommand("text");
  EXPECT_THAT(std::string(text.status().message()),
              HasSubstr("\"text\": no such program in $PATH (/none:"));
  EXPECT_THAT(std::string(FindCommand("./none").status().message()),
              HasSubstr("cannot run ./none: No such file"));
  EXPECT_FALSE(FindCommand("").ok());
}

}  // namespace
}  // namespace holdfast
