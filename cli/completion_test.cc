// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <stdio.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() : folder_(::testing::TempDir() + "/completion") {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/run");
    std::ofstream(folder_ + "/cluster.json") << "{}";
    std::ofstream(folder_ + "/run/inside.json") << "{}";
    std::ofstream(folder_ + "/script.bash")
        << BashCompletion(std::vector<CommandWords>{
               {"local", {{"on_failure", "stop|restart"}, {"tls", ""}}},
               {"checkpoint list", {}},
               {"checkpoint save", {{"ps", "HOST:PORT"}}},
               {"status",
                {{"json", ""},
                 {"ps", "HOST:PORT"},
                 {"cluster_spec", "FILE"},
                 {"run_dir", "FOLDER"}}},
           });
  }

  // What bash offers for the last of `words`, which bash has split at '='.
  std::vector<std::string> Offered(const std::vector<std::string>& words) {
    std::vector<std::string> quoted;
    for (const std::string& word : words) quoted.push_back("'" + word + "'");
    const std::string command = absl::StrCat(
        "cd ", folder_,
        "; compopt() { :; }; . ./script.bash; COMP_WORDS=(holdfast ",
        absl::StrJoin(quoted, " "), "); COMP_CWORD=", words.size(),
        "; _holdfast; printf '%s\\n' \"${COMPREPLY[@]}\"");
    FILE* const pipe =
        popen(absl::StrCat(
                  "bash -euc \"",
                  absl::StrReplaceAll(
                      command, {{"\\", "\\\\"}, {"\"", "\\\""}, {"$", "\\$"}}),
                  "\" 2>&1")
                  .c_str(),
              "r");
    std::string output;
    char buffer[4096];
    while (const size_t size = fread(buffer, 1, sizeof(buffer), pipe)) {
      output.append(buffer, size);
    }
    EXPECT_EQ(pclose(pipe), 0) << output;
    return absl::StrSplit(output, '\n', absl::SkipEmpty());
  }

  const std::string folder_;
};

TEST_F(CompletionTest, Commands) {
  EXPECT_THAT(Offered({"st"}), UnorderedElementsAre("status"));
  EXPECT_THAT(Offered({""}),
              UnorderedElementsAre("local", "checkpoint", "status", "help",
                                   "--help", "--version"));
  EXPECT_THAT(Offered({"checkpoint", ""}),
              UnorderedElementsAre("list", "save", "--help"));
}

TEST_F(CompletionTest, Flags) {
  EXPECT_THAT(Offered({"status", "--"}),
              UnorderedElementsAre("--json", "--ps=", "--cluster_spec=",
                                   "--run_dir=", "--help"));
  EXPECT_THAT(Offered({"status", "--json", "--r"}),
              UnorderedElementsAre("--run_dir="));
  EXPECT_THAT(Offered({"checkpoint", "save", "--p"}),
              UnorderedElementsAre("--ps="));
  EXPECT_THAT(Offered({"checkpoint", "list", "--p"}), IsEmpty());
}

TEST_F(CompletionTest, Values) {
  EXPECT_THAT(Offered({"local", "--on_failure", "="}),
              UnorderedElementsAre("stop", "restart"));
  EXPECT_THAT(Offered({"local", "--on_failure", "=", "re"}),
              UnorderedElementsAre("restart"));
  EXPECT_THAT(Offered({"local", "--on_failure", "s"}),
              UnorderedElementsAre("stop"));
  EXPECT_THAT(Offered({"status", "--cluster_spec", "=", "cl"}),
              UnorderedElementsAre("cluster.json"));
  EXPECT_THAT(Offered({"status", "--run_dir", "=", ""}),
              UnorderedElementsAre("run"));
  // A switch has no value: the next word is another argument.
  EXPECT_THAT(Offered({"local", "--tls", "--on"}),
              UnorderedElementsAre("--on_failure="));
}

TEST_F(CompletionTest, FilesElsewhere) {
  EXPECT_THAT(Offered({"checkpoint", "list", "ru"}),
              UnorderedElementsAre("run"));
  EXPECT_THAT(Offered({"local", "--", "scr"}),
              UnorderedElementsAre("script.bash"));
}

}  // namespace
}  // namespace holdfast
