// SPDX-License-Identifier: Apache-2.0

// A job that begins with the values and optimizer slots of another job's
// checkpoint, with real processes.
//
// The training set is read in one order, again and again, and kSteps steps read
// all of it a whole number of times. So a job of kSteps steps that takes over
// values and slots of another such job repeats the second half of a job of 2 x
// kSteps steps, and must end with the same bits.

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// 2 x 16 examples in each step, from 200.
constexpr int kSteps = 25;

constexpr char kMomentum[] = "learning_rate: 0.2 momentum { momentum: 0.9 }";
constexpr char kAdam[] = "learning_rate: 0.01 adam {}";

class WarmStartTest : public ::testing::Test {
 protected:
  WarmStartTest() : folder_(FreshFolder()) { WriteExamples(folder_); }

  static SmallJob Job(const std::string& optimizer, int steps = kSteps) {
    SmallJob job;
    job.steps = steps;
    job.optimizer = optimizer;
    // Only the last checkpoint.
    job.more = "checkpoints { every_seconds: 0 }\n";
    return job;
  }

  std::unique_ptr<Program> Start(const SmallJob& job,
                                 const std::vector<std::string>& flags) {
    run_dir_ = absl::StrCat(folder_, "/run-", runs_++);
    const std::string path = WriteJob(folder_, job);
    WriteText(path, absl::StrReplaceAll(ReadText(path),
                                        {{"data {", "data { shuffle: NONE"}}));
    std::vector<std::string> args = {kHoldfast, "local", "--job=" + path,
                                     "--run_dir=" + run_dir_, "--workers=2"};
    args.insert(args.end(), flags.begin(), flags.end());
    return std::make_unique<Program>(args);
  }
  std::string Digest() {
    return StringIn(ReadResult(run_dir_ + "/result.json"), "digest");
  }
  std::string Run(const SmallJob& job, const std::vector<std::string>& flags) {
    const auto program = Start(job, flags);
    EXPECT_EQ(program->Wait(), 0) << program->output();
    return Digest();
  }

  // Runs the job, and returns the flags for another job to begin at its end.
  std::string FlagsAfter(const std::string& optimizer) {
    Run(Job(optimizer), {"--ps=2"});
    return absl::StrCat("--ps_flags=--warm_start=", run_dir_,
                        "/checkpoints/g0001-step000000", kSteps,
                        " --warm_start_slots");
  }
  pid_t PidOf(const std::string& daemon) const {
    return std::atoi(
        ReadText(absl::StrCat(run_dir_, "/", daemon, ".pid")).c_str());
  }

  const std::string folder_;
  int runs_ = 0;
  std::string run_dir_;
};

TEST_F(WarmStartTest, WithSlotsTheSecondHalfIsThatOfOneJob) {
  for (const std::string& optimizer :
       {std::string(kMomentum), std::string(kAdam),
        std::string("learning_rate: 0.01 adamw {}")}) {
    SCOPED_TRACE(optimizer);
    const std::string whole = Run(Job(optimizer, 2 * kSteps), {"--ps=2"});
    const std::string warm = FlagsAfter(optimizer);
    for (const char* ps : {"--ps=1", "--ps=2", "--ps=3"}) {
      EXPECT_EQ(Run(Job(optimizer), {ps, warm}), whole) << ps;
    }
    EXPECT_THAT(ReadText(run_dir_ + "/ps-0.log"),
                HasSubstr(": 4 of 4 variables keep their optimizer slots\n"));
    const std::string without =
        absl::StrReplaceAll(warm, {{" --warm_start_slots", ""}});
    EXPECT_NE(Run(Job(optimizer), {"--ps=2", without}), whole);
  }
}

// The ps is killed before the job has a checkpoint of its own to roll back to.
TEST_F(WarmStartTest, APsThatIsKilledBeginsWithTheSame) {
  const std::string whole = Run(Job(kAdam, 2 * kSteps), {"--ps=2"});
  const std::string warm = FlagsAfter(kAdam);
  for (const char* victim : {"ps-0", "ps-1"}) {
    SCOPED_TRACE(victim);
    const auto program =
        Start(Job(kAdam), {"--ps=2", "--on_failure=restart", "--lease=1s", warm,
                           absl::StrCat("--worker_binary=", kSlowWorker),
                           "--worker_flags=--slow_step_ms_max=100"});
    EXPECT_TRUE(program->ReadUntil(" examples/s")) << program->output();
    kill(PidOf(victim), SIGKILL);
    EXPECT_EQ(program->Wait(), 0) << program->output();
    EXPECT_EQ(NumberIn(ReadResult(run_dir_ + "/result.json"), "recoveries"), 1);
    EXPECT_EQ(Digest(), whole);
  }
}

TEST_F(WarmStartTest, VariablesOfOtherShapesBeginAnew) {
  const std::string warm = FlagsAfter(kMomentum);
  SmallJob wider = Job(kMomentum);
  wider.units = 24;
  Run(wider, {"--ps=2", warm});
  EXPECT_THAT(ReadText(run_dir_ + "/ps-0.log"),
              HasSubstr("1 of 4 variables keep their optimizer slots; these "
                        "start with new slots: dense/kernel, dense/bias, "
                        "dense_1/kernel\n"));
}

// Adam's bias corrections would be wrong for some of the variables.
TEST_F(WarmStartTest, APartOfAdamsVariablesIsRefused) {
  const std::string warm = FlagsAfter(kAdam);
  SmallJob wider = Job(kAdam);
  wider.units = 24;
  const auto program = Start(wider, {"--ps=2", warm});
  EXPECT_EQ(program->Wait(), 1);
  EXPECT_THAT(program->output(),
              AllOf(HasSubstr("--warm_start_slots: the slots of variable "
                              "\"dense/kernel\" would begin with 0 updates"),
                    HasSubstr(absl::StrCat("\"dense_1/bias\" with ", kSteps))));
}

}  // namespace
}  // namespace holdfast
