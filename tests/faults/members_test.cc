// SPDX-License-Identifier: Apache-2.0

// Processes that crash as they start, and a coordinator or a chief that is gone
// for good: which tasks are admitted, which give up and with which exit code,
// and which one writes the result.

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/process/daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(60);
constexpr int kCrashes = 5;

class MembersTest : public ::testing::Test {
 protected:
  MembersTest() : folder_(FreshFolder()) {}

  static void AwaitStep(TaskCluster* cluster, uint64_t step) {
    ASSERT_TRUE(cluster->AdvanceUntil(
        [&] { return cluster->max_step() >= step; }, kLimit))
        << cluster->Describe();
  }

  // The incarnation of a task that is alive; 0 if it is not.
  static uint64_t IncarnationOf(const TaskCluster& cluster,
                                const std::string& job, uint32_t index) {
    for (const proto::TaskStatus& task : cluster.status().tasks()) {
      if (task.alive() && task.task().job() == job &&
          task.task().index() == index) {
        return task.incarnation();
      }
    }
    return 0;
  }

  // Kills the task and several of its successors, each while it waits for the
  // place; the last successor lives.
  static void CrashLoop(TaskCluster* cluster, const std::string& name) {
    cluster->Signal(name, SIGKILL);
    for (int crash = 0; crash < kCrashes; ++crash) {
      const int starts = cluster->starts(name);
      ASSERT_TRUE(cluster->AdvanceUntil(
          [&] { return cluster->starts(name) > starts; }, kLimit));
      // Long enough to register.
      cluster->AdvanceFor(absl::Milliseconds(200));
      cluster->Signal(name, SIGKILL);
    }
  }

  const std::string folder_;
};

// [L1] Tasks that died while they waited for the place never get it.
TEST_F(MembersTest, ACrashLoopCostsOneLease) {
  TaskCluster::Options options = SmallCluster(JobKind::kSynchronous, folder_);
  // Longer than the crashes take.
  options.ps_flags = {"--lease=4s"};
  TaskCluster cluster(options);
  cluster.StartAll();
  AwaitStep(&cluster, 5);
  const uint64_t worker = IncarnationOf(cluster, "worker", 1);

  CrashLoop(&cluster, "worker-1");
  const uint64_t reached = cluster.max_step();
  AwaitStep(&cluster, reached + 5);
  EXPECT_EQ(IncarnationOf(cluster, "worker", 1), worker + 1);
  EXPECT_EQ(cluster.status().generation(), 1);

  CrashLoop(&cluster, "ps-1");
  const absl::Status ended = cluster.AwaitEnd(kLimit);
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(cluster.status().generation(), 2);
}

// Only the coordinator can declare that the job has failed. All tasks give up
// after their own timeouts, and may be started again.
TEST_F(MembersTest, WithoutTheCoordinatorNobodySaysThatTheJobHasFailed) {
  TaskCluster::Options options = SmallCluster(JobKind::kSynchronous, folder_);
  options.num_ps = 3;
  SmallJob job;
  job.steps = 100000;
  job.more =
      "checkpoints { every_steps: 7 }\n"
      "timeouts { start_seconds: 20 step_seconds: 30 recovery_seconds: 3 }\n";
  options.job_file = WriteJob(folder_, job);
  options.ps_flags = {"--lease=1s", "--recovery_timeout=1s"};
  options.restart_delay = absl::Hours(1);
  TaskCluster cluster(options);
  cluster.StartAll();
  AwaitStep(&cluster, 5);
  cluster.Abandon("ps-0");
  const std::vector<std::string> left = {"ps-1", "ps-2", "worker-0",
                                         "worker-1"};
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] {
        return std::none_of(left.begin(), left.end(), [&](const auto& name) {
          return cluster.running(name);
        });
      },
      kLimit))
      << cluster.Describe();
  for (const std::string& name : left) {
    EXPECT_EQ(cluster.exit_code(name), kExitRestart)
        << name << cluster.Describe();
    // The job's timeout, not the flag's.
    EXPECT_THAT(cluster.log(name), HasSubstr("no answer for 3s")) << name;
  }
}

// A job that goes on without lost workers does not wait for a lost chief.
TEST_F(MembersTest, AnotherWorkerWritesTheResultOfALostChief) {
  TaskCluster::Options options = SmallCluster(JobKind::kGoingOn, folder_);
  TaskCluster cluster(options);
  cluster.StartAll();
  AwaitStep(&cluster, 5);
  cluster.Abandon("worker-0");
  const absl::Status ended = cluster.AwaitEnd(kLimit);
  EXPECT_TRUE(ended.ok()) << ended;
  ASSERT_TRUE(std::filesystem::exists(cluster.result_file()))
      << cluster.Describe();
  EXPECT_EQ(NumberIn(ReadResult(cluster.result_file()), "global_step"),
            kJobSteps);
  EXPECT_THAT(cluster.log("ps-0"),
              HasSubstr("the job is DONE; /job:worker/task:1"));
}

}  // namespace
}  // namespace holdfast
