// SPDX-License-Identifier: Apache-2.0

// Jobs whose tasks are cut off from each other for longer than the lease, in
// both directions or in one, and are then reconnected.

#include "tests/faults/network.h"

#include <atomic>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

constexpr absl::Duration kCutLength = absl::Milliseconds(2500);
constexpr absl::Duration kLimit = absl::Seconds(90);
// The jobs wait more than they work.
constexpr int kParallel = 6;
constexpr uint32_t kSeed = 1;
// The number of kinds of jobs that each cut is tried with, in rotation.
constexpr int kKindsEach = 3;

struct Round {
  const char* what;
  // Pairs {from, to}: all packets from the first task to the second are lost.
  // An empty name means all tasks.
  std::vector<std::pair<std::string, std::string>> cuts;
};

const Round kRounds[] = {
    {"worker, both ways", {{"worker-1", ""}, {"", "worker-1"}}},
    {"what the worker sends", {{"worker-1", ""}}},
    {"what the worker is sent", {{"", "worker-1"}}},
    {"ps 1, both ways", {{"ps-1", ""}, {"", "ps-1"}}},
    {"what ps 1 sends", {{"ps-1", ""}}},
    {"what ps 1 is sent", {{"", "ps-1"}}},
    {"ps 0, both ways", {{"ps-0", ""}, {"", "ps-0"}}},
    {"between worker and ps 1", {{"worker-1", "ps-1"}, {"ps-1", "worker-1"}}},
    {"from ps 0 to ps 1", {{"ps-0", "ps-1"}}},
};

// Returns the time of recovery after the cut is healed, or why there was no
// recovery. `shared` is set to the result of CheckShared.
absl::StatusOr<absl::Duration> Survive(const Round& round, JobKind kind,
                                       uint64_t from_step,
                                       const std::string& folder,
                                       const std::string& digest,
                                       absl::Status* shared) {
  TaskCluster::Options options = SmallCluster(kind, folder);
  const auto network =
      TestNetwork::Create({"ps-0", "ps-1", "worker-0", "worker-1"});
  if (!network.ok()) return network.status();
  options.ps_addresses = {(*network)->Address("ps-0") + ":2222",
                          (*network)->Address("ps-1") + ":2222"};
  options.launcher = [&](const std::string& task) {
    return (*network)->Launcher(task);
  };
  options.ps_flags.push_back("--insecure");
  options.worker_flags.push_back("--insecure");

  const absl::Time deadline = SteadyNow() + kLimit;
  TaskCluster cluster(options);
  cluster.StartAll();
  const auto over = [&] {
    return cluster.failed() || cluster.exit_code("ps-0") == 0;
  };
  cluster.AdvanceUntil(
      [&] { return over() || cluster.status().global_step() >= from_step; },
      kLimit);
  if (over()) {
    return absl::InternalError("it was over too soon\n" + cluster.Describe());
  }
  for (const auto& [from, to] : round.cuts) {
    for (const std::string& task : {from, to}) {
      if (!task.empty()) cluster.SetHit(task);
    }
    if (auto status = (*network)->Cut(from, to); !status.ok()) return status;
  }
  cluster.AdvanceFor(kCutLength);
  const uint64_t step = cluster.max_step();
  if (auto status = (*network)->HealAll(); !status.ok()) return status;
  const absl::Time healed = SteadyNow();
  cluster.AdvanceUntil([&] { return over() || cluster.max_step() > step; },
                       deadline - SteadyNow());
  const absl::Duration took = SteadyNow() - healed;
  absl::Status status = cluster.AwaitEnd(deadline - SteadyNow());
  *shared = CheckShared(cluster);
  if (status.ok()) {
    status = CheckEnd(kind, cluster, digest);
    if (!status.ok()) {
      status = absl::Status(status.code(), absl::StrCat(status.message(), "\n",
                                                        cluster.Describe()));
    }
  }
  if (!status.ok()) return status;
  return took;
}

TEST(NetworkTest, LinksAreCutAndHealed) {
  const auto probe = TestNetwork::Create({"probe"});
  if (!probe.ok()) {
    GTEST_SKIP() << "cannot create network namespaces here (they need root "
                    "and iproute2): "
                 << probe.status();
  }
  const std::string folder = FreshFolder();
  const auto digests = DigestsInPeace(folder + "/peace");
  ASSERT_TRUE(digests.ok()) << digests.status();

  constexpr int kNumRounds = std::size(kRounds) * kKindsEach;
  std::mt19937 random(kSeed);
  std::vector<uint64_t> from_steps;
  for (int i = 0; i < kNumRounds; ++i) {
    from_steps.push_back(1 + random() % (kJobSteps / 2));
  }
  absl::Mutex mutex;
  std::vector<std::string> failures;
  // Kinds of jobs in which tensors were seen to pass through shared memory,
  // which is not affected by cuts of the network.
  std::set<JobKind> have_shared;
  std::vector<std::string> lines(kNumRounds);
  std::atomic<int> next(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < kParallel; ++i) {
    threads.emplace_back([&] {
      for (;;) {
        const int index = next++;
        if (index >= kNumRounds) return;
        const Round& round = kRounds[index / kKindsEach];
        const JobKind kind = kJobKinds[index % std::size(kJobKinds)];
        absl::Status shared;
        const auto took = Survive(round, kind, from_steps[index],
                                  absl::StrCat(folder, "/round-", index),
                                  digests->at(kind), &shared);
        const std::string name =
            absl::StrFormat("%-24s %-16s from step %2d", round.what,
                            NameOf(kind), from_steps[index]);
        absl::MutexLock lock(&mutex);
        if (took.ok() && shared.ok()) have_shared.insert(kind);
        lines[index] = took.ok()
                           ? absl::StrFormat("%s  survived, back after %.2f s",
                                             name, absl::ToDoubleSeconds(*took))
                           : absl::StrCat(name, "  NOT SURVIVED");
        if (!took.ok()) {
          failures.push_back(
              absl::StrCat(name, ": ", took.status().ToString()));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::cout << "cut for " << kCutLength << ", seed " << kSeed << "\n";
  for (const std::string& line : lines) std::cout << line << "\n";
  for (const std::string& failure : failures) ADD_FAILURE() << failure;
  EXPECT_THAT(have_shared, ::testing::UnorderedElementsAreArray(kJobKinds));
}

}  // namespace
}  // namespace holdfast
