// SPDX-License-Identifier: Apache-2.0

// What users see when ps 0 hangs: its connections stay open, and nothing is
// answered on them.

#include <signal.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/process/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(60);

class StuckTest : public ::testing::Test {
 protected:
  StuckTest() : cluster_(MakeOptions()) {
    cluster_.StartAll();
    EXPECT_TRUE(cluster_.AdvanceUntil(
        [&] { return cluster_.status().global_step() >= 5; }, kLimit))
        << cluster_.Describe();
  }

  static TaskCluster::Options MakeOptions() {
    TaskCluster::Options options =
        SmallCluster(JobKind::kSynchronous, FreshFolder());
    options.ps_flags.front() = "--lease=30s";
    return options;
  }

  std::vector<std::string> Command(const std::vector<std::string>& words,
                                   absl::Duration timeout) const {
    std::vector<std::string> args = {kHoldfast};
    args.insert(args.end(), words.begin(), words.end());
    args.push_back(absl::StrCat("--ps=", cluster_.coordinator_address()));
    args.push_back(absl::StrCat("--timeout=", absl::FormatDuration(timeout)));
    return args;
  }

  TaskCluster cluster_;
};

TEST_F(StuckTest, CommandsSaySoWithinTheirTimeout) {
  const absl::Duration kTimeout = absl::Seconds(5);
  cluster_.Signal("ps-0", SIGSTOP);
  const absl::Time begun = SteadyNow();
  std::map<std::string, std::unique_ptr<Program>> commands;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"status"},
        {"status", "--json"},
        {"events"},
        {"events", "--follow"},
        {"history"},
        {"checkpoint", "save"}}) {
    commands[absl::StrJoin(words, " ")] =
        std::make_unique<Program>(Command(words, kTimeout));
  }
  for (const auto& [words, command] : commands) {
    EXPECT_EQ(command->Wait(), kExitFailed) << words;
    EXPECT_LT(SteadyNow() - begun, kTimeout + absl::Seconds(5)) << words;
    EXPECT_THAT(command->output(),
                HasSubstr(absl::StrCat(
                    "holdfast ", words.substr(0, words.find(" --")),
                    ": /job:ps/task:0 (", cluster_.coordinator_address(),
                    "): connections are accepted, but the peer "
                    "sends nothing\n")));
  }
  cluster_.Signal("ps-0", SIGCONT);
  EXPECT_TRUE(cluster_.AwaitEnd(kLimit).ok()) << cluster_.Describe();
}

TEST_F(StuckTest, TopSaysForHowLong) {
  Program top(
      {"/usr/bin/script", "-qfec",
       absl::StrCat("stty cols 120 rows 40; ",
                    absl::StrJoin(Command({"top"}, absl::Seconds(2)), " ")),
       "/dev/null"});
  ASSERT_TRUE(top.ReadUntil("training")) << top.output();
  cluster_.Signal("ps-0", SIGSTOP);
  EXPECT_TRUE(top.ReadUntil("no answer for 2s: ")) << top.output();
  cluster_.Signal("ps-0", SIGCONT);
  EXPECT_TRUE(top.ReadUntil("q: quit")) << top.output();
}

}  // namespace
}  // namespace holdfast
