// The ps daemon as a process: what it makes of its command line, and how it
// ends.

#include "common/daemon.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// More steps than a test lives.
constexpr uint64_t kForever = 1000000000;

struct Usage {
  std::vector<std::string> args;
  // Parts of the one line on stderr.
  std::vector<std::string> expected;
  std::vector<std::string> env = {};
};

TEST(UsageTest, WrongUseIsOneClearLineAndExitCode2) {
  const std::string one = "--ps_hosts=127.0.0.1:1";
  const std::string worker = "--worker_hosts=127.0.0.1:2";
  const std::vector<Usage> cases = {
      // Flags.
      {{"--task=0"}, {"--task", "--help"}},
      {{"0"}, {"\"0\"", "--help"}},
      {{"--task_index"}, {"--task_index", "value"}},
      {{"--task_index=first", one, worker}, {"--task_index", "first"}},
      {{"--task_index=-1", one, worker}, {"-1"}},
      {{"--lease=10", "--task_index=0", one, worker}, {"--lease", "10"}},
      {{"--lease=1ms", "--task_index=0", one, worker},
       {"--lease", "1ms", "500ms"}},
      {{"--lease=-1s", "--task_index=0", one, worker}, {"--lease", "-1s"}},
      {{"--start_timeout=0", "--task_index=0", one, worker},
       {"--start_timeout"}},
      {{"--step_timeout=0", "--task_index=0", one, worker}, {"--step_timeout"}},
      {{"--memory_limit=8G", "--task_index=0", one, worker},
       {"--memory_limit", "\"8G\"", "8GiB"}},
      {{"--memory_limit=0", "--task_index=0", one, worker},
       {"--memory_limit", "\"0\""}},
      {{"--insecure=maybe", "--task_index=0", one, worker}, {"--insecure"}},
      {{"--task_index=0", "--task_index=1", one, worker},
       {"--task_index", "twice"}},
      // The cluster.
      {{}, {"--cluster_spec", "TF_CONFIG"}},
      {{"--task_index=0", worker}, {"ps"}},
      {{"--task_index=0", one}, {"worker"}},
      {{"--task_index=0", "--ps_hosts=127.0.0.1", worker},
       {"127.0.0.1", "port"}},
      {{"--task_index=0", "--ps_hosts=127.0.0.1:99999", worker}, {"99999"}},
      {{"--task_index=0", "--ps_hosts=127.0.0.1:2", worker}, {"127.0.0.1:2"}},
      {{"--task_index=0", "--cluster_spec={", one}, {"--cluster_spec"}},
      {{"--task_index=0", "--cluster_spec={"}, {"--cluster_spec"}},
      {{"--task_index=0", "--cluster_spec=/no/such/file"}, {"/no/such/file"}},
      {{"--task_index=0", "--cluster_spec={\"gpu\": [\"a:1\"]}"}, {"gpu"}},
      {{"--task_index=0", one, worker, "--chief_hosts=127.0.0.1:3,127.0.0.1:4"},
       {"chief"}},
      {{}, {"TF_CONFIG"}, {"TF_CONFIG={"}},
      // The task.
      {{"--task_index=1", one, worker}, {"/job:ps/task:1"}},
      {{"--job_name=boss", "--task_index=0", one, worker}, {"boss"}},
      {{"--job_name=ps", one, worker}, {"--task_index"}},
      {{"--job_name=worker", "--task_index=0", one, worker},
       {"/job:worker/task:0", "ps"}},
      {{},
       {"/job:worker/task:0", "ps"},
       {"TF_CONFIG={\"cluster\": {\"ps\": [\"127.0.0.1:1\"], \"worker\": "
        "[\"127.0.0.1:2\"]}, \"task\": {\"type\": \"worker\", \"index\": 0}}"}},
      // Where to listen.
      {{"--task_index=0", absl::StrCat("--ps_hosts=0.0.0.0:", PickUnusedPort()),
        worker},
       {"/job:ps/task:0", "0.0.0.0", "--insecure"}},
      {{"--task_index=0", "--listen_address=here", one, worker},
       {"/job:ps/task:0", "here"}},
  };
  for (const Usage& usage : cases) {
    Process ps(kPsServer, usage.args, usage.env);
    EXPECT_EQ(ps.Wait(kPatience), 2) << ps.Output();
    const std::string output = ps.Output();
    // With JSON comes the place where it is wrong, on lines of its own.
    if (!absl::StrContains(output, "JSON object")) {
      EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
    }
    EXPECT_THAT(output, testing::StartsWith("ps_server: "));
    for (const std::string& part : usage.expected) {
      EXPECT_THAT(output, HasSubstr(part)) << absl::StrJoin(usage.args, " ");
    }
  }
}

TEST(UsageTest, Help) {
  Process ps(kPsServer, {"--help"});
  EXPECT_EQ(ps.Wait(kPatience), 0);
  for (const char* flag :
       {"--job_name", "--task_index", "--cluster_spec", "--ps_hosts",
        "--worker_hosts", "--chief_hosts", "--insecure", "--lease",
        "--start_timeout", "--step_timeout", "--memory_limit",
        "--listen_address"}) {
    EXPECT_THAT(ps.Output(), HasSubstr(flag));
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
  // A ps that names, in its last line, itself and `reason`.
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
  // Each waits for those that start after it.
  StartWorker(1, 5);
  StartPs(1);
  StartWorker(0, 5);
  StartPs(0);
  for (const auto& worker : worker_) ExpectEnd(worker.get(), 0, "step 4");
  for (uint32_t i = 0; i < 2; ++i) ExpectPsEnd(i, 0, "the job is done");
  EXPECT_THAT(ps_[1]->Output(),
              HasSubstr(absl::StrCat("/job:ps/task:1 listening on ",
                                     *spec_.Address({kPsJob, 1}))));
  // The default is what this machine has.
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
  // Whoever holds it may be on its way out.
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

// The job may go on from there.
TEST_F(DaemonTest, APsWithACheckpointDirectoryIsToldToStop) {
  Process ps(kPsServer,
             {"--task_index=0", absl::StrCat("--cluster_spec=", spec_.ToJson()),
              absl::StrCat("--checkpoint_dir=", testing::TempDir(), "/saved")});
  ASSERT_TRUE(ps.AwaitOutput("listening", kPatience));
  ps.Signal(SIGTERM);
  ExpectEnd(&ps, kExitRestart, "SIGTERM");
}

TEST_F(DaemonTest, TheSecondSignalEndsItAtOnce) {
  // A job that nobody but a silent worker could end: ps 0 waits a lease for it.
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
