// SPDX-License-Identifier: Apache-2.0

// Which task is named when something is slow, in jobs of real processes: a
// worker at a tenth of its speed, a worker that waits for its input, a ps with
// a slow disk; and that no task is named while all are alike.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "re2/re2.h"
#include "tests/faults/cluster.h"
#include "tests/integration/http_get.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLimit = absl::Seconds(60);
// Steps take 30 ms on average, so that no task counts as slow because it was
// preempted for a moment.
constexpr char kUsualDelay[] = "--slow_step_ms_max=60";

// The words that precede a task's command line to append `flags` to it.
std::vector<std::string> WithFlags(const std::string& flags) {
  return {"sh", "-c", absl::StrCat("exec \"$@\" ", flags), "sh"};
}

// A job that goes on until the test ends, and what is reported about it.
class SlowTasksTest : public ::testing::Test {
 protected:
  SlowTasksTest() : folder_(FreshFolder()) { WriteExamples(folder_); }

  TaskCluster::Options MakeOptions(SmallJob job) const {
    job.steps = 10'000'000;
    TaskCluster::Options options;
    options.folder = folder_;
    options.job_file = WriteJob(folder_, job);
    options.worker_binary = kSlowWorker;
    options.num_workers = 4;
    options.ps_flags = {"--status_port=0"};
    options.worker_flags = {"--status_port=0", "--input_threads=1",
                            kUsualDelay};
    return options;
  }

  // The status as a user sees it.
  static std::string Status(const TaskCluster& cluster) {
    Program status({kHoldfast, "status",
                    absl::StrCat("--ps=", cluster.coordinator_address())});
    EXPECT_EQ(status.Wait(), 0) << status.output();
    return status.output();
  }

  static std::string Get(const TaskCluster& cluster, const std::string& task,
                         const std::string& path) {
    int port = 0;
    EXPECT_TRUE(RE2::PartialMatch(
        cluster.log(task),
        R"((?:serves its status|serves --status_port).* on port (\d+))", &port))
        << cluster.log(task);
    return HttpGet(port, path).body;
  }

  // The events of one kind.
  static std::vector<proto::Event> Events(const TaskCluster& cluster,
                                          proto::Event::Kind kind) {
    proto::GetEventsResponse all;
    const std::string json = Get(cluster, "ps-0", "/events.json");
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &all).ok())
        << json;
    std::vector<proto::Event> found;
    for (const proto::Event& event : all.events()) {
      if (event.kind() == kind) found.push_back(event);
    }
    return found;
  }

  // Waits until `holdfast status` prints `text`, and returns its whole output.
  static std::string AwaitStatus(TaskCluster* cluster,
                                 const std::string& text) {
    std::string last;
    EXPECT_TRUE(cluster->AdvanceUntil(
        [&] {
          if (cluster->status().global_step() == 0) return false;
          last = Status(*cluster);
          return absl::StrContains(last, text);
        },
        kLimit))
        << "no \"" << text << "\" in:\n"
        << last << cluster->Describe();
    return last;
  }

  const std::string folder_;
};

struct Mode {
  const char* name;
  const char* consistency;
  const char* more;
  // The first step, or ticket, at which worker 1 is slow: some five seconds
  // after the start.
  uint64_t from;
  // Steps, or tickets, of the job in the time of one push of the slow worker.
  uint64_t per_slow_push;
};

class SlowWorkerTest : public SlowTasksTest,
                       public ::testing::WithParamInterface<Mode> {};

TEST_P(SlowWorkerTest, IsNamedSoonAndNobodyBefore) {
  const Mode& mode = GetParam();
  SmallJob job;
  job.consistency = mode.consistency;
  job.more = mode.more;
  TaskCluster::Options options = MakeOptions(job);
  options.launcher = [&](const std::string& task) {
    return task == "worker-1"
               ? WithFlags(absl::StrCat(
                     "--slow_step_factor=10 --slow_step_from=", mode.from))
               : std::vector<std::string>();
  };
  TaskCluster cluster(options);
  cluster.StartAll();
  const std::string status = AwaitStatus(&cluster, "worker:1 is slow: ");
  const std::vector<proto::Event> slow = Events(cluster, proto::Event::SLOW);
  ASSERT_EQ(slow.size(), 1u) << status;
  EXPECT_EQ(slow[0].task().job(), "worker");
  EXPECT_EQ(slow[0].task().index(), 1);
  EXPECT_THAT(slow[0].text(), HasSubstr(" per push, where the median is "));
  // At a tenth of the speed, three pushes change the mean of 20 enough; two
  // consecutive assessments, one per second, must agree.
  const uint64_t at = slow[0].step();
  std::cout << mode.name << ": slow from " << mode.from << " on, named at "
            << at << std::endl;
  EXPECT_GE(at, mode.from);
  EXPECT_LE(at, mode.from + 20 * mode.per_slow_push);

  // Status and metrics of the same time or later name no other worker.
  for (const char* other : {"worker:0 is", "worker:2 is", "worker:3 is"}) {
    EXPECT_THAT(status, Not(HasSubstr(other)));
  }
  const std::string metrics = Get(cluster, "ps-0", "/metrics");
  EXPECT_THAT(
      metrics,
      AllOf(HasSubstr(
                "holdfast_job_worker_slow{worker=\"/job:worker/task:1\"} 1"),
            HasSubstr("\nholdfast_job_slow_workers 1\n")));
  const std::string json = Get(cluster, "ps-0", "/status.json");
  EXPECT_THAT(json, HasSubstr("\"slow\":true"));
}

INSTANTIATE_TEST_SUITE_P(
    Modes, SlowWorkerTest,
    ::testing::Values(
        Mode{"ByStep",
             "synchronous { replicas_to_aggregate: 4 total_num_replicas: 4 }",
             "", 100, 1},
        Mode{"ByTicket",
             "synchronous { replicas_to_aggregate: 3 total_num_replicas: 4 }",
             "examples: BY_TICKET\n", 100, 10},
        Mode{"Asynchronous", "asynchronous {}", "", 500, 40},
        Mode{"Bounded", "asynchronous { staleness_bound: 4 }", "", 500, 40}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(SlowTasksTest, AWorkerThatWaitsForItsInput) {
  TaskCluster::Options options = MakeOptions({});
  options.num_workers = 2;
  options.launcher = [](const std::string& task) {
    // 16 examples in a batch.
    return task == "worker-1" ? WithFlags("--slow_example_ms=20")
                              : std::vector<std::string>();
  };
  TaskCluster cluster(options);
  cluster.StartAll();
  const std::string status =
      AwaitStatus(&cluster, "worker:1 waits for its input for ");
  EXPECT_THAT(status, Not(HasSubstr("worker:0 waits for its input")));
  EXPECT_TRUE(RE2::PartialMatch(status, R"((?m)^worker:1 .* input \d+%)"))
      << status;
  // The worker's own metrics show that it spends most of its time waiting for
  // input; the other worker waits for the verdict.
  const auto share = [&](const std::string& task, const std::string& phase) {
    double of_phase = 0;
    double sum = 0;
    const std::string text = Get(cluster, task, "/metrics");
    re2::StringPiece rest(text);
    std::string name;
    double seconds = 0;
    while (RE2::FindAndConsume(
        &rest,
        R"re(holdfast_worker_phase_seconds_total{phase="(\w+)"} (\S+))re",
        &name, &seconds)) {
      sum += seconds;
      if (name == phase) of_phase = seconds;
    }
    return sum == 0 ? 0 : of_phase / sum;
  };
  EXPECT_GT(share("worker-1", "input"), 0.5);
  EXPECT_LT(share("worker-0", "input"), 0.1);
  EXPECT_GT(share("worker-0", "verdict"), 0.5);
}

class SlowDiskTest : public SlowTasksTest {
 protected:
  // Every sync of the disk of `slow_task` takes 1.5 s more.
  TaskCluster::Options WithSlowDisk(const std::string& slow_task) {
    SmallJob job;
    job.more = "checkpoints { every_steps: 10 }\n";
    TaskCluster::Options options = MakeOptions(job);
    options.num_workers = 2;
    options.launcher = [slow_task](const std::string& task) {
      return task == slow_task
                 ? std::vector<std::string>{"env",
                                            "LD_PRELOAD=tests/faults/"
                                            "libbad_disk.so",
                                            "BAD_DISK_SYNC_MS=1500"}
                 : std::vector<std::string>();
    };
    return options;
  }

  static double SaveSeconds(const TaskCluster& cluster,
                            const std::string& task) {
    const std::string text = Get(cluster, task, "/metrics");
    double seconds = -1;
    EXPECT_TRUE(RE2::PartialMatch(
        text, R"((?m)^holdfast_shard_save_seconds (\S+)$)", &seconds))
        << text;
    return seconds;
  }
};

TEST_F(SlowDiskTest, OfOneOfTwoPs) {
  TaskCluster cluster(WithSlowDisk("ps-1"));
  cluster.StartAll();
  const std::string status = AwaitStatus(&cluster, "ps:1 has a slow disk");
  EXPECT_THAT(status, Not(HasSubstr("ps:0 has a slow disk")));
  EXPECT_GE(SaveSeconds(cluster, "ps-1"), 1.5);
  EXPECT_LT(SaveSeconds(cluster, "ps-0"), 1);
}

TEST_F(SlowDiskTest, OfTheOnlyPs) {
  TaskCluster::Options options = WithSlowDisk("ps-0");
  options.num_ps = 1;
  TaskCluster cluster(options);
  cluster.StartAll();
  AwaitStatus(&cluster, "ps:0 has a slow disk");
  EXPECT_GE(SaveSeconds(cluster, "ps-0"), 1.5);
}

}  // namespace
}  // namespace holdfast
