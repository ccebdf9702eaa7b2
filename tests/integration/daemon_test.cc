// SPDX-License-Identifier: Apache-2.0

// The ps daemon as a process: its command line, and how it ends.

#include "common/process/daemon.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/process.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr char kPsServer[] = "ps_server/ps_server";
constexpr char kTestWorker[] = "tests/integration/test_worker";

// More steps than a test can make.
constexpr uint64_t kForever = 1000000000;

// Wrong command lines are in tests/usage/cases/daemons.txt.
TEST(UsageTest, WrongUseIsOneLine) {
  const std::string cluster = R"({"ps": ["a:1"], "worker": ["b:1"]})";
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--task=0"},
        std::vector<std::string>{"--task_index=1", "--cluster_spec=" + cluster},
        std::vector<std::string>{"--task_index=0", "--cluster_spec={"}}) {
    Process ps(kPsServer, args);
    EXPECT_EQ(ps.Wait(kPatience), 2) << ps.Output();
    const std::string output = ps.Output();
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
    EXPECT_THAT(output, testing::StartsWith("ps_server: "));
  }
}

// Two ps and two workers, each a process.
class DaemonTest : public testing::Test {
 protected:
  DaemonTest() : spec_(MakeLoopbackCluster(2, 2)) {}

  void StartPs(uint32_t index) {
    ps_[index] = std::make_unique<Process>(
        kPsServer,
        std::vector<std::string>{
            absl::StrCat("--task_index=", index),
            absl::StrCat("--cluster_spec=", spec_.ToJson()), "--lease=1s",
            index == 0 ? "--recovery_timeout=0" : "--recovery_timeout=1s"});
  }
  void StartWorker(uint32_t index, uint64_t steps) {
    worker_[index] = std::make_unique<Process>(
        kTestWorker,
        std::vector<std::string>{spec_.ToJson(), absl::StrCat(index),
                                 absl::StrCat(steps)});
  }
  void StartAll(uint64_t steps) {
    for (uint32_t i = 0; i < 2; ++i) {
      StartPs(i);
      StartWorker(i, steps);
    }
  }
  void AwaitTraining() {
    for (const auto& worker : worker_) {
      ASSERT_TRUE(worker->AwaitOutput("step 3\n", kPatience))
          << worker->Output();
    }
  }

  static void ExpectEnd(Process* process, int exit_code,
                        const std::string& reason) {
    EXPECT_EQ(process->Wait(kPatience), exit_code) << process->Output();
    EXPECT_THAT(process->Output(), HasSubstr(reason));
  }
  // Expects that the last line of the ps names itself and `reason`.
  void ExpectPsEnd(uint32_t index, int exit_code, const std::string& reason) {
    ExpectEnd(ps_[index].get(), exit_code, reason);
    const std::vector<std::string> lines =
        absl::StrSplit(ps_[index]->Output(), '\n', absl::SkipEmpty());
    EXPECT_THAT(lines.back(),
                AllOf(HasSubstr(absl::StrCat("/job:ps/task:", index)),
                      HasSubstr(reason)));
  }

  const ClusterSpec spec_;
  std::unique_ptr<Process> ps_[2];
  std::unique_ptr<Process> worker_[2];
};

TEST_F(DaemonTest, EverybodyExits0WhenTheJobIsDone) {
  // Each task waits for those that start after it.
  StartWorker(1, 5);
  StartPs(1);
  StartWorker(0, 5);
  StartPs(0);
  for (const auto& worker : worker_) ExpectEnd(worker.get(), 0, "step 4");
  for (uint32_t i = 0; i < 2; ++i) ExpectPsEnd(i, 0, "the job is done");
  EXPECT_THAT(ps_[1]->Output(),
              HasSubstr(absl::StrCat("/job:ps/task:1 listening on ",
                                     *spec_.Address({kPsJob, 1}))));
  // The default limit depends on this machine's memory.
  EXPECT_THAT(ps_[0]->Output(),
              testing::ContainsRegex("may take [1-9][0-9]* bytes of memory"));
}

TEST_F(DaemonTest, AWorkerIsKilled) {
  StartAll(kForever);
  AwaitTraining();
  worker_[1]->Signal(SIGKILL);
  ExpectEnd(worker_[0].get(), 1, "/job:worker/task:1");
  for (uint32_t i = 0; i < 2; ++i) ExpectPsEnd(i, 1, "/job:worker/task:1");
}

TEST_F(DaemonTest, APsIsKilled) {
  StartAll(kForever);
  AwaitTraining();
  ps_[1]->Signal(SIGKILL);
  ExpectPsEnd(0, 1, "/job:ps/task:1");
  for (const auto& worker : worker_) {
    ExpectEnd(worker.get(), 1, "/job:ps/task:1");
  }
}

TEST_F(DaemonTest, ThePsWithTheCoordinatorIsKilled) {
  StartAll(kForever);
  AwaitTraining();
  ps_[0]->Signal(SIGKILL);
  ExpectPsEnd(1, kExitRestart, "/job:ps/task:0");
  for (const auto& worker : worker_) {
    ExpectEnd(worker.get(), 1, "/job:ps/task:0");
  }
}

TEST_F(DaemonTest, APsIsToldToStop) {
  StartAll(kForever);
  AwaitTraining();
  ps_[1]->Signal(SIGTERM);
  ExpectPsEnd(1, 1, "SIGTERM");
  ExpectPsEnd(0, 1, "/job:ps/task:1");
  for (const auto& worker : worker_) ExpectEnd(worker.get(), 1, "SIGTERM");
}

TEST_F(DaemonTest, ThePsWithTheCoordinatorIsToldToStop) {
  StartAll(kForever);
  AwaitTraining();
  ps_[0]->Signal(SIGINT);
  for (uint32_t i = 0; i < 2; ++i) ExpectPsEnd(i, 1, "/job:ps/task:0");
  for (const auto& worker : worker_) ExpectEnd(worker.get(), 1, "SIGINT");
}

TEST_F(DaemonTest, APortInUse) {
  StartPs(0);
  ASSERT_TRUE(ps_[0]->AwaitOutput("listening", kPatience));
  Process other(kPsServer, {"--task_index=0",
                            absl::StrCat("--cluster_spec=", spec_.ToJson())});
  // The process that holds the port may be about to end.
  EXPECT_EQ(other.Wait(kPatience), kExitRestart);
  EXPECT_THAT(other.Output(), AllOf(HasSubstr("/job:ps/task:0"),
                                    HasSubstr(*spec_.Address({kPsJob, 0})),
                                    HasSubstr("in use")));
}

TEST_F(DaemonTest, APsOfAnotherClusterIsRefused) {
  StartPs(0);
  const auto other =
      ClusterSpec::FromHosts(absl::StrCat(*spec_.Address({kPsJob, 0}), ",",
                                          *spec_.Address({kPsJob, 1})),
                             *spec_.Address({kWorkerJob, 0}), "");
  ASSERT_TRUE(other.ok()) << other.status();
  Process ps(kPsServer, {"--task_index=1",
                         absl::StrCat("--cluster_spec=", other->ToJson())});
  ExpectEnd(&ps, kExitUsage, "2 ps and 1 worker tasks");
}

// A supervisor restarts the ps, so that the job can continue.
TEST_F(DaemonTest, APsWithACheckpointDirectoryIsToldToStop) {
  Process ps(kPsServer,
             {"--task_index=0", absl::StrCat("--cluster_spec=", spec_.ToJson()),
              absl::StrCat("--checkpoint_dir=", testing::TempDir(), "/saved")});
  ASSERT_TRUE(ps.AwaitOutput("listening", kPatience));
  ps.Signal(SIGTERM);
  ExpectEnd(&ps, kExitRestart, "SIGTERM");
}

TEST_F(DaemonTest, TheSecondSignalEndsItAtOnce) {
  // Only a silent worker could end this job: ps 0 waits for it until its lease
  // expires.
  StartAll(kForever);
  AwaitTraining();
  worker_[1]->Signal(SIGSTOP);
  ps_[0]->Signal(SIGTERM);
  ASSERT_TRUE(ps_[0]->AwaitOutput("FAILED", kPatience));
  ps_[0]->Signal(SIGTERM);
  EXPECT_THAT(ps_[0]->Wait(kPatience), testing::AnyOf(1, 128 + SIGTERM));
}

}  // namespace
}  // namespace holdfast
