// SPDX-License-Identifier: Apache-2.0

// `holdfast local` when a task dies, or when it is interrupted.

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
using ::testing::Not;

class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest() : folder_(FreshFolder()), run_dir_(folder_ + "/run") {
    WriteExamples(folder_);
  }

  // Starts a job that does not end by itself and waits until it trains.
  std::unique_ptr<Program> StartEndlessJob() {
    SmallJob job;
    job.steps = 1000000000;
    auto program = std::make_unique<Program>(std::vector<std::string>{
        kHoldfast, "local", "--job=" + WriteJob(folder_, job),
        "--run_dir=" + run_dir_, "--ps=2", "--workers=2", "--lease=1s"});
    // By then, every daemon has written to its log.
    EXPECT_TRUE(program->ReadUntil(" examples/s")) << program->output();
    for (const char* name : {"ps-0", "ps-1", "worker-0", "worker-1"}) {
      daemons_.push_back(std::make_unique<WatchedProcess>(PidOf(name)));
    }
    return program;
  }

  pid_t PidOf(const std::string& daemon) const {
    const pid_t pid = std::atoi(
        ReadText(absl::StrCat(run_dir_, "/", daemon, ".pid")).c_str());
    EXPECT_GT(pid, 0) << daemon;
    return pid;
  }

  void ExpectNoDaemonIsLeft(absl::Duration within = absl::ZeroDuration()) {
    for (const auto& daemon : daemons_) {
      EXPECT_TRUE(daemon->IsGoneWithin(within));
    }
  }

  const std::string folder_;
  const std::string run_dir_;
  std::vector<std::unique_ptr<WatchedProcess>> daemons_;
};

TEST_F(FaultsTest, DaemonThatIsKilledIsNamed) {
  for (const char* name : {"worker-1", "worker-0", "ps-1", "ps-0"}) {
    SCOPED_TRACE(name);
    auto program = StartEndlessJob();
    const pid_t pid = PidOf(name);
    kill(pid, SIGKILL);
    EXPECT_EQ(program->Wait(), 1);
    EXPECT_THAT(program->output(),
                AllOf(HasSubstr(absl::StrCat(name, " (pid ", pid,
                                             ") ended with signal 9 (Killed)")),
                      HasSubstr(absl::StrCat("The end of its log, ", run_dir_,
                                             "/", name, ".log:\n  "))));
    ExpectNoDaemonIsLeft();
    EXPECT_EQ(ReadText(run_dir_ + "/ps-0.pid"), "");
    daemons_.clear();
  }
}

TEST_F(FaultsTest, InterruptEndsEverything) {
  for (const int signal : {SIGINT, SIGTERM}) {
    auto program = StartEndlessJob();
    program->Signal(signal);
    EXPECT_EQ(program->Wait(), 130) << program->output();
    EXPECT_THAT(
        program->output(),
        AllOf(HasSubstr("interrupted; ending ps-0, ps-1, worker-0, worker-1"),
              ContainsRegex("step [1-9][0-9]* is saved; to go on from there:\n"
                            "  holdfast local --job="),
              HasSubstr("--run_dir=" + run_dir_)));
    // No task has waited for a task that had already gone.
    for (const char* log : {"ps-0.log", "ps-1.log"}) {
      EXPECT_THAT(ReadText(absl::StrCat(run_dir_, "/", log)),
                  Not(HasSubstr("failed to leave")));
    }
    ExpectNoDaemonIsLeft();
    daemons_.clear();
  }
}

// A ps saves the job before it ends, and cannot do so without the other ps.
TEST_F(FaultsTest, TheSecondSignalEndsADaemonAtOnce) {
  auto program = StartEndlessJob();
  kill(PidOf("ps-1"), SIGSTOP);
  kill(PidOf("ps-0"), SIGINT);
  kill(PidOf("ps-0"), SIGTERM);
  EXPECT_TRUE(program->ReadUntil(") ended with exit status 143"))
      << program->output();
  kill(PidOf("ps-1"), SIGCONT);
  EXPECT_EQ(program->Wait(), 1);
}

TEST_F(FaultsTest, NoDaemonOutlivesTheCommand) {
  auto program = StartEndlessJob();
  program->Signal(SIGKILL);
  EXPECT_EQ(program->Wait(), 128 + SIGKILL);
  ExpectNoDaemonIsLeft(absl::Seconds(10));
}

TEST_F(FaultsTest, WorkerThatIsToldToStopEndsTheJobEverywhere) {
  auto program = StartEndlessJob();
  kill(PidOf("worker-1"), SIGTERM);
  EXPECT_EQ(program->Wait(), 1);
  EXPECT_THAT(program->output(), HasSubstr("told to stop by SIGTERM"));
  ExpectNoDaemonIsLeft();
}

TEST_F(FaultsTest, DaemonThatCannotStartIsNamedWithItsReason) {
  const std::string job = WriteJob(folder_, {});
  Program program({kHoldfast, "local", "--job=" + job, "--run_dir=" + run_dir_,
                   "--worker_flags=--no_such_flag=1"});
  EXPECT_EQ(program.Wait(), 2);
  EXPECT_THAT(program.output(),
              AllOf(HasSubstr(") ended with exit status 2."),
                    HasSubstr("unknown flag --no_such_flag")));
}

TEST_F(FaultsTest, DataThatAreCutOffAreNamed) {
  const std::string job = WriteJob(folder_, {});
  const std::string images = ReadText(folder_ + "/images.idx");
  WriteText(folder_ + "/images.idx", images.substr(0, 1000));
  Program program(
      {kHoldfast, "local", "--job=" + job, "--run_dir=" + run_dir_});
  EXPECT_EQ(program.Wait(), 2);
  EXPECT_THAT(program.output(), AllOf(HasSubstr(") ended with exit status 2."),
                                      HasSubstr(folder_ + "/images.idx")));
}

TEST_F(FaultsTest, AJobThatDivergesFails) {
  SmallJob job;
  job.optimizer = "learning_rate: 1e30 sgd {}";
  job.more = "max_consecutive_not_finite: 7";
  std::string reasons[2];
  for (std::string& reason : reasons) {
    const std::string run_dir =
        absl::StrCat(folder_, "/run-", &reason - reasons);
    Program program({kHoldfast, "local", "--job=" + WriteJob(folder_, job),
                     "--run_dir=" + run_dir,
                     absl::StrCat("--worker_binary=", kSlowWorker),
                     "--worker_flags=--slow_step_ms_max=5"});
    EXPECT_EQ(program.Wait(), 1);
    EXPECT_THAT(program.output(),
                HasSubstr("the last 7 contributions up to step "));
    EXPECT_EQ(ReadText(run_dir + "/result.json"), "");
    const size_t begin = program.output().find("the job has diverged: ");
    ASSERT_NE(begin, std::string::npos) << program.output();
    reason = program.output().substr(
        begin, program.output().find("not finite", begin) - begin);
  }
  EXPECT_EQ(reasons[0], reasons[1]) << "at the same step, whatever the timing";
  // Without a limit, the program does not stop the job.
  job.more = "max_consecutive_not_finite: 0";
  Program program({kHoldfast, "local", "--job=" + WriteJob(folder_, job),
                   "--run_dir=" + run_dir_});
  EXPECT_EQ(program.Wait(), 0) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("pushes, which changed nothing"));
}

TEST_F(FaultsTest, AFinishedRunIsNotRunAgain) {
  const std::string job = WriteJob(folder_, {});
  const std::vector<std::string> args = {kHoldfast, "local", "--job=" + job,
                                         "--run_dir=" + run_dir_};
  Program first(args);
  EXPECT_EQ(first.Wait(), 0) << first.output();
  const std::string result = ReadText(run_dir_ + "/result.json");
  const std::string log = ReadText(run_dir_ + "/ps-0.log");
  EXPECT_THAT(result, HasSubstr("\"aggregation\": \"MEAN\""));
  Program again(args);
  EXPECT_EQ(again.Wait(), 0) << again.output();
  EXPECT_THAT(again.output(), AllOf(HasSubstr("is already done"),
                                    HasSubstr("another --run_dir")));
  // A different job.
  SmallJob other;
  other.units = 8;
  WriteJob(folder_, other);
  Program refused(args);
  EXPECT_EQ(refused.Wait(), 2);
  EXPECT_THAT(refused.output(), AllOf(HasSubstr("dense.units: 16 -> 8"),
                                      HasSubstr("give another --run_dir")));
  EXPECT_EQ(ReadText(run_dir_ + "/result.json"), result);
  EXPECT_EQ(ReadText(run_dir_ + "/ps-0.log"), log);
}

TEST_F(FaultsTest, AResumeWithAnotherJobFileIsToldTheDifference) {
  auto program = StartEndlessJob();
  program->Signal(SIGINT);
  EXPECT_EQ(program->Wait(), 130) << program->output();
  SmallJob job;
  job.steps = 1000000000;
  job.optimizer = "learning_rate: 0.1 momentum { momentum: 0.8 }";
  Program other({kHoldfast, "local", "--job=" + WriteJob(folder_, job),
                 "--run_dir=" + run_dir_});
  EXPECT_EQ(other.Wait(), 2);
  EXPECT_THAT(other.output(), AllOf(HasSubstr("momentum.momentum: 0.9 -> 0.8"),
                                    HasSubstr("--warm_start")));
}

TEST_F(FaultsTest, RunDirectoryInUseIsRefused) {
  auto program = StartEndlessJob();
  Program second({kHoldfast, "local",
                  absl::StrCat("--job=", folder_, "/job.textproto"),
                  "--run_dir=" + run_dir_});
  EXPECT_EQ(second.Wait(), 2);
  EXPECT_THAT(second.output(), HasSubstr(run_dir_ + " is in use"));
}

}  // namespace
}  // namespace holdfast
