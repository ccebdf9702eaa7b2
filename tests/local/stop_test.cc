// SPDX-License-Identifier: Apache-2.0

// `holdfast stop` on real processes: all exit with 0, and the same command
// resumes the job and ends with the digest of an undisturbed run.

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

class StopTest : public ::testing::Test {
 protected:
  StopTest() : folder_(FreshFolder()), run_dir_(folder_ + "/run") {
    WriteExamples(folder_);
  }

  // A run of 2 ps and 2 workers, whose steps take a while.
  std::unique_ptr<Program> Start(const SmallJob& job,
                                 std::vector<std::string> flags = {}) {
    std::vector<std::string> args = {
        kHoldfast,
        "local",
        "--job=" + WriteJob(folder_, job),
        "--run_dir=" + run_dir_,
        "--ps=2",
        "--workers=2",
        absl::StrCat("--worker_binary=", kSlowWorker),
        "--worker_flags=--slow_step_ms_max=20"};
    args.insert(args.end(), flags.begin(), flags.end());
    return std::make_unique<Program>(args);
  }

  // Runs `holdfast stop` once the run trains, and returns the exit code.
  int StopWhenItTrains(Program* run, std::vector<std::string> flags = {}) {
    EXPECT_TRUE(run->ReadUntil(" examples/s")) << run->output();
    std::vector<std::string> args = {kHoldfast, "stop",
                                     "--run_dir=" + run_dir_};
    args.insert(args.end(), flags.begin(), flags.end());
    Program stop(args);
    const int code = stop.Wait();
    said_ = stop.output();
    return code;
  }

  std::string Log(const std::string& task) const {
    return ReadText(absl::StrCat(run_dir_, "/", task, ".log"));
  }

  std::string UndisturbedDigest(const SmallJob& job) {
    const std::string run_dir = folder_ + "/undisturbed";
    Program program({kHoldfast, "local", "--job=" + WriteJob(folder_, job),
                     "--run_dir=" + run_dir, "--ps=2", "--workers=2"});
    EXPECT_EQ(program.Wait(), 0) << program.output();
    return StringIn(ReadResult(run_dir + "/result.json"), "digest");
  }

  const std::string folder_;
  std::string run_dir_;
  std::string said_;
};

TEST_F(StopTest, TheSameCommandGoesOnToTheSameDigest) {
  SmallJob job;
  job.steps = 150;
  auto run = Start(job);
  EXPECT_EQ(StopWhenItTrains(run.get()), 0) << said_;
  EXPECT_THAT(said_, ContainsRegex("The job was stopped at step [1-9][0-9]* of "
                                   "150; started again with the same "
                                   "checkpoint directory, it goes on from "
                                   "there\\."));
  EXPECT_EQ(run->Wait(), 0) << run->output();
  EXPECT_THAT(
      run->output(),
      ContainsRegex("the job was stopped; step [1-9][0-9]* is saved; to go on "
                    "from there:\n  holdfast local --job=[^ ]* --run_dir="));
  EXPECT_EQ(ReadText(run_dir_ + "/result.json"), "") << "there is no result";
  for (const char* task : {"ps-0", "ps-1", "worker-0", "worker-1"}) {
    EXPECT_THAT(Log(task), HasSubstr("the job was stopped at step ")) << task;
  }

  run = Start(job);
  EXPECT_EQ(run->Wait(), 0) << run->output();
  EXPECT_THAT(run->output(), HasSubstr("small: done"));
  const auto result = ReadResult(run_dir_ + "/result.json");
  EXPECT_EQ(NumberIn(result, "global_step"), 150);
  EXPECT_EQ(NumberIn(result, "recoveries"), 1);
  EXPECT_EQ(StringIn(result, "digest"), UndisturbedDigest(job));
}

TEST_F(StopTest, AnAsynchronousJobSpendsEachTicketOnce) {
  for (const char* consistency : {"asynchronous { pipeline_depth: 2 }",
                                  "asynchronous { staleness_bound: 3 }"}) {
    SCOPED_TRACE(consistency);
    run_dir_ += "_";
    SmallJob job;
    job.steps = 200;
    job.consistency = consistency;
    auto run = Start(job, {"--on_failure=restart"});
    EXPECT_EQ(StopWhenItTrains(run.get()), 0) << said_;
    EXPECT_EQ(run->Wait(), 0) << run->output();
    EXPECT_THAT(run->output(), HasSubstr("the job was stopped; step "));
    run = Start(job, {"--on_failure=restart"});
    EXPECT_EQ(run->Wait(), 0) << run->output();
    const auto result = ReadResult(run_dir_ + "/result.json");
    EXPECT_EQ(NumberIn(result, "global_step"), 200);
    const google::protobuf::Struct pushes =
        result.fields().at("pushes").struct_value();
    EXPECT_EQ(NumberIn(pushes, "accepted"), 200);
  }
}

TEST_F(StopTest, WithoutCheckpointsItHasToBeSaid) {
  SmallJob job;
  job.steps = 1000000000;
  auto run = Start(job, {"--checkpoint_dir=none"});
  EXPECT_EQ(StopWhenItTrains(run.get()), 1) << said_;
  EXPECT_THAT(said_, AllOf(HasSubstr("without a checkpoint directory"),
                           HasSubstr("--without_checkpoint")));
  EXPECT_EQ(StopWhenItTrains(run.get(), {"--without_checkpoint"}), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("nothing was saved"));
  EXPECT_EQ(run->Wait(), 0) << run->output();
  EXPECT_THAT(run->output(), HasSubstr("no step was saved; to start again:"));
}

// The run shows the output of worker 0.
TEST_F(StopTest, ARunOfACommandEndsTheSame) {
  SmallJob job;
  job.steps = 1000000000;
  Program run({kHoldfast, "local", "--run_dir=" + run_dir_, "--ps=2", "--",
               kPsWorker, "--job=" + WriteJob(folder_, job)});
  EXPECT_EQ(StopWhenItTrains(&run), 0) << said_;
  EXPECT_EQ(run.Wait(), 0) << run.output();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("the job was stopped at step "),
                                  HasSubstr("is saved; to go on from there:")));
}

}  // namespace
}  // namespace holdfast
