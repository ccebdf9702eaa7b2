// SPDX-License-Identifier: Apache-2.0

// `holdfast local -- COMMAND`: programs that find their task in TF_CONFIG, as a
// script does. Here the program is a worker with a job file.

#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class CommandTest : public ::testing::Test {
 protected:
  CommandTest() : folder_(FreshFolder()), run_dir_(folder_ + "/run") {
    WriteExamples(folder_);
  }

  // Starts a run of `worker` on the job, with additional flags.
  std::unique_ptr<Program> Start(const SmallJob& job, const std::string& worker,
                                 std::vector<std::string> flags) {
    std::vector<std::string> args = {kHoldfast, "local",
                                     "--run_dir=" + run_dir_};
    args.insert(args.end(), flags.begin(), flags.end());
    args.insert(args.end(), {"--", worker, "--job=" + WriteJob(folder_, job),
                             "--result_file=" + result_});
    if (worker == kSlowWorker) args.push_back("--slow_step_ms_max=20");
    return std::make_unique<Program>(args);
  }

  std::string Digest() const { return StringIn(ReadResult(result_), "digest"); }

  // The digest of the same job, run with --job.
  std::string DigestOfJobFile(const SmallJob& job) {
    const std::string run_dir = folder_ + "/job";
    Program program({kHoldfast, "local", "--job=" + WriteJob(folder_, job),
                     "--run_dir=" + run_dir});
    EXPECT_EQ(program.Wait(), 0) << program.output();
    return StringIn(ReadResult(run_dir + "/result.json"), "digest");
  }

  pid_t PidOf(const std::string& task) const {
    return std::atoi(
        ReadText(absl::StrCat(run_dir_, "/", task, ".pid")).c_str());
  }

  const std::string folder_;
  const std::string run_dir_;
  const std::string result_ = folder_ + "/command.json";
};

TEST_F(CommandTest, TrainsAsAJobFileDoes) {
  auto program = Start({}, kPsWorker, {"--ps=1"});
  EXPECT_EQ(program->Wait(), 0) << program->output();
  EXPECT_THAT(
      program->output(),
      AllOf(HasSubstr("ps_worker: 1 ps and 2 workers"),
            // Worker 0's log.
            HasSubstr("the job is done\n"),
            HasSubstr("ps_worker: done\n  steps          40, saved\n")));
  EXPECT_EQ(Digest(), DigestOfJobFile({}));
  // A finished job is not run again.
  const std::string log = ReadText(run_dir_ + "/ps-0.log");
  program = Start({}, kPsWorker, {"--ps=1"});
  EXPECT_EQ(program->Wait(), 0) << program->output();
  EXPECT_THAT(program->output(), HasSubstr("is already done"));
  EXPECT_EQ(ReadText(run_dir_ + "/ps-0.log"), log);
}

TEST_F(CommandTest, WhatIsKilledIsStartedAgain) {
  SmallJob job;
  job.steps = 150;
  job.more = "checkpoints { every_steps: 20 }";
  auto program =
      Start(job, kSlowWorker, {"--ps=2", "--on_failure=restart", "--lease=2s"});
  EXPECT_TRUE(program->ReadUntil(" examples/s")) << program->output();
  for (const char* task : {"worker-1", "ps-0"}) {
    kill(PidOf(task), SIGKILL);
    EXPECT_TRUE(program->ReadUntil(absl::StrCat(task, " (pid ")))
        << program->output();
  }
  EXPECT_EQ(program->Wait(), 0) << program->output();
  EXPECT_EQ(Digest(), DigestOfJobFile(job));
}

TEST_F(CommandTest, GoesOnFromWhereItWasInterrupted) {
  SmallJob job;
  job.steps = 150;
  auto program = Start(job, kSlowWorker, {"--ps=2"});
  EXPECT_TRUE(program->ReadUntil(" examples/s")) << program->output();
  program->Signal(SIGINT);
  EXPECT_EQ(program->Wait(), 130) << program->output();
  EXPECT_THAT(program->output(),
              ContainsRegex("step [1-9][0-9]* is saved; to go on from there:\n"
                            "  holdfast local --run_dir=[^ ]* --ps=2 -- "));
  program = Start(job, kSlowWorker, {"--ps=2"});
  EXPECT_EQ(program->Wait(), 0) << program->output();
  EXPECT_EQ(NumberIn(ReadResult(result_), "recoveries"), 1);
  EXPECT_EQ(Digest(), DigestOfJobFile(job));
}

// The worker rejects an unknown flag.
TEST_F(CommandTest, WrongUseOfTheCommandIsFinal) {
  auto program = Start({}, "worker/none", {});
  EXPECT_EQ(program->Wait(), 2);
  EXPECT_THAT(program->output(), HasSubstr("cannot run worker/none: No such"));

  Program flag({kHoldfast, "local", "--run_dir=" + run_dir_,
                "--on_failure=restart", "--", kPsWorker, "--no_such_flag"});
  EXPECT_EQ(flag.Wait(), 2);
  EXPECT_THAT(flag.output(), HasSubstr("unknown flag --no_such_flag"));
}

TEST_F(CommandTest, EndsThatComeTooEarlyAreTold) {
  Program program({kHoldfast, "local", "--run_dir=" + run_dir_, "--", "true"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_THAT(program.output(),
              HasSubstr("worker-0, worker-1 ended with exit status 0, but the "
                        "job is not done: starting"));
}

}  // namespace
}  // namespace holdfast
