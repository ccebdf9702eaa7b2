// SPDX-License-Identifier: Apache-2.0

// Idle processes sleep.

#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(60);
constexpr absl::Duration kLook = absl::Seconds(3);

// How often each thread has gone to sleep, keyed by "name tid".
std::map<std::string, int64_t> Sleeps(pid_t pid) {
  std::map<std::string, int64_t> sleeps;
  for (const auto& task : std::filesystem::directory_iterator(
           absl::StrCat("/proc/", pid, "/task"))) {
    std::ifstream status(task.path() / "status");
    std::string name, word;
    int64_t count = 0;
    while (status >> word) {
      if (word == "Name:") status >> name;
      if (word == "voluntary_ctxt_switches:") status >> count;
    }
    sleeps[absl::StrCat(name, " ", task.path().filename().string())] = count;
  }
  return sleeps;
}

// A worker whose push waits for another worker's: it waits for the verdict and
// has nothing else to do.
TEST(ParkedTest, AWorkerInAStepThatWaitsForAnother) {
  TaskCluster::Options options =
      SmallCluster(JobKind::kSynchronous, FreshFolder());
  options.ps_flags.front() = "--lease=30s";
  TaskCluster cluster(options);
  cluster.StartAll();
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return cluster.status().global_step() >= 10; }, kLimit))
      << cluster.Describe();
  cluster.Signal("worker-1", SIGSTOP);
  // By now worker 0 has done its part of the step, and the prefetched batches.
  cluster.AdvanceFor(absl::Seconds(1));
  std::map<std::string, std::map<std::string, int64_t>> before;
  for (const char* task : {"worker-0", "ps-0", "ps-1"}) {
    before[task] = Sleeps(cluster.pid(task));
  }
  cluster.AdvanceFor(kLook);
  for (const char* task : {"worker-0", "ps-0", "ps-1"}) {
    double rate = 0;
    for (const auto& [thread, count] : Sleeps(cluster.pid(task))) {
      const double more =
          (count - before[task][thread]) / absl::ToDoubleSeconds(kLook);
      if (more > 0) std::cout << task << " " << thread << " " << more << "\n";
      rate += more;
    }
    std::cout << task << ": " << rate << " wake-ups per second\n";
    if (task == std::string("worker-0")) {
      EXPECT_LE(rate, 10);
    }
  }
}

}  // namespace
}  // namespace holdfast
