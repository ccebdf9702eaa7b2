// SPDX-License-Identifier: Apache-2.0

// Membership, checkpoints and recovery (docs/protocol/recovery.md) under a
// seeded scheduler: the real coordinator and shards, workers, a network that
// delays, reorders, repeats and loses messages, a disk that is slow and fails
// at times, and processes that die, sleep, leave and come back at any moment.
// The promises are checked all the time (tests/world/): values are those of one
// cut of one line of generations, everything that was reported as final stays,
// and every job comes to its end, with each of its examples used once.
//
// A failure names its scenario and seed.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simulation/jobs.h"
#include "tests/simulation/simulation.h"

namespace holdfast {
namespace {

constexpr absl::Duration kLease = absl::Seconds(6);

constexpr Faults kSome = {30, 100};
constexpr Faults kNotLent = {30, 100, 200};

proto::Checkpoints Every(uint64_t steps) {
  proto::Checkpoints checkpoints;
  checkpoints.set_every_steps(steps);
  checkpoints.set_every_seconds(0);
  checkpoints.set_keep(3);
  return checkpoints;
}

std::string NameOf(const Troubles& troubles) {
  return absl::StrCat(
      troubles.damage ? "Damaged" : "", troubles.resize ? "Resized" : "",
      troubles.slow_disk ? "SlowDisk" : "", troubles.edited ? "Edited" : "");
}

// All state kept for calls and pushes is gone when the job is over.
void ExpectNothingLeft(const sim::World& world, size_t most_verdicts) {
  EXPECT_THAT(world.parked(), ::testing::IsEmpty())
      << "calls are parked for ever";
  EXPECT_LE(world.coordinator()->verdicts_kept(), most_verdicts);
  for (uint32_t ps = 0; ps < world.num_ps(); ++ps) {
    if (world.shard(ps) == nullptr) continue;
    EXPECT_EQ(world.shard(ps)->staged_bytes(), 0);
    EXPECT_LE(world.shard(ps)->verdicts_kept(), most_verdicts);
  }
  // No call waits until a share is written or read: callers poll.
  EXPECT_LE(world.longest_wait(), absl::Seconds(8));
  // Chains need some checkpoints that are not kept for their own sake.
  EXPECT_LE(world.disk().num_checkpoints(),
            8 + (sim::HasRows(world.job()) ? sim::kMaxDeltas : 0));
  EXPECT_FALSE(world.disk().destroyed_any())
      << "a checkpoint that one ps could not read is gone";
}

// Returns the number of generations in all schedules.
uint64_t RunSchedules(sim::Job job, const Troubles& troubles,
                      uint32_t num_workers, size_t most_verdicts) {
  job.lease = kLease;
  Schedules schedules = SchedulesToRun(200);
  // Simulates days, in which much happens, so fewer schedules are run.
  if (troubles.slow_disk) schedules.count = (schedules.count + 14) / 15;
  uint64_t generations = 0;
  for (uint64_t i = 0; i < schedules.count; ++i) {
    const uint64_t seed = schedules.first + i;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomScheduler::Options options;
    options.seed = seed;
    options.faults = job.lends ? kNotLent : kSome;
    options.disk_failing = 30;
    if (troubles.slow_disk) {
      options.longest_write = absl::Minutes(40);
      // A last checkpoint that fails a second time fails the job.
      options.between_disk_faults = absl::Hours(3);
    }
    Simulation simulation(job, options, troubles, num_workers, job.num_workers);
    simulation.Run();
    EXPECT_EQ(simulation.world().violation(), "");
    ExpectNothingLeft(simulation.world(), most_verdicts);
    if (::testing::Test::HasFailure()) return generations;
    generations += simulation.world().disk().journal().generation();
  }
  ::testing::Test::RecordProperty("generations", static_cast<int>(generations));
  if (schedules.count > 1) {
    EXPECT_GT(generations, schedules.count) << "nothing was ever lost";
  }
  return generations;
}

// ---- Synchronous jobs ----

struct SynchronousScenario {
  SynchronousJob job;
  Troubles troubles;
};

class SynchronousRecoveryTest
    : public ::testing::TestWithParam<SynchronousScenario> {};

TEST_P(SynchronousRecoveryTest, PromisesHoldUnderEverySchedule) {
  const SynchronousJob& job = GetParam().job;
  RunSchedules(MakeJob(job), GetParam().troubles, job.m,
               8 * std::max(job.n, job.m));
}

SynchronousJob Job(uint32_t n, uint32_t m, uint32_t num_ps, uint64_t steps,
                   uint64_t every, uint64_t tickets = 0) {
  SynchronousJob job;
  job.n = n;
  job.m = m;
  job.num_ps = num_ps;
  job.steps = steps;
  job.faults = kSome;
  job.tickets = tickets;
  job.checkpoints = Every(every);
  return job;
}

// The ClusterSpec has `cluster_workers` workers, at most m.
SynchronousJob Continues(SynchronousJob job, uint32_t min_replicas,
                         uint32_t cluster_workers) {
  job.min_replicas = min_replicas;
  job.cluster_workers = cluster_workers;
  return job;
}

SynchronousJob WithWeight0(SynchronousJob job) {
  job.empty_handed = true;
  return job;
}

Troubles Edited(Troubles troubles) {
  troubles.edited = true;
  return troubles;
}

SynchronousJob Judged(SynchronousJob job) {
  job.judged = true;
  return job;
}

SynchronousJob WithRates(SynchronousJob job) {
  job.changes_rate = true;
  return job;
}

// Workers are mostly clients that lend.
template <typename Job>
Job Lending(Job job) {
  job.lends = true;
  return job;
}

template <typename Job>
Job StartingAgain(Job job) {
  job.starts_again = true;
  return job;
}

SynchronousJob Early(SynchronousJob job) {
  job.early = true;
  return job;
}

template <typename Job>
Job WithRows(Job job) {
  job.rows = true;
  return job;
}

template <typename Job>
Job TablesAlone(Job job) {
  job.tables_alone = true;
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, SynchronousRecoveryTest,
    ::testing::ValuesIn(std::vector<SynchronousScenario>{
        {Job(1, 1, 1, 6, 2), {3}},
        {Job(2, 2, 2, 8, 2), {3}},
        {Job(2, 2, 3, 8, 1), {4}},
        {WithWeight0(Job(3, 3, 2, 8, 3)), {4}},
        {Job(2, 2, 2, 10, 0), {3}},
        {Job(4, 2, 2, 6, 2), {3}},
        {Job(2, 3, 2, 8, 2), {4}},
        {Job(2, 2, 2, 10, 2), {4, true, true}},
        {Job(2, 2, 2, 6, 3), {2, false, false, true}},
        {Job(2, 2, 3, 6, 2, 12), {4}},
        {WithWeight0(Job(4, 2, 2, 5, 2, 18)), {4, true, true}},
        {Job(2, 3, 2, 7, 2, 13), {4}},
        {Continues(Job(3, 3, 2, 8, 2), 1, 3), {4}},
        {Continues(Job(3, 3, 2, 7, 2, 20), 2, 2), {5, true, true}},
        {Continues(Job(2, 4, 3, 8, 2, 15), 1, 2), {5}},
        {Continues(Job(2, 3, 2, 8, 2, 15), 1, 1), {5}},
        {Job(2, 2, 2, 8, 2), Edited({4})},
        {Job(2, 3, 2, 8, 3), Edited({4, true, true})},
        {Continues(Job(3, 3, 2, 8, 2), 1, 3), Edited({4})},
        {Lending(Job(2, 2, 1, 8, 2)), {3}},
        {Lending(Job(2, 3, 2, 8, 2)), {4}},
        {Lending(Continues(Job(3, 3, 2, 8, 2), 1, 3)), {4}},
        // Gradients that were handed in are replaced by others.
        {StartingAgain(Job(2, 2, 2, 8, 2)), {4}},
        {StartingAgain(WithRows(Lending(Job(2, 3, 2, 8, 2)))), {4}},
        // Gradients are computed while values arrive.
        {Early(Job(2, 2, 2, 8, 2)), {4}},
        {Early(Lending(Job(2, 3, 2, 8, 2))), {4}},
        // Embedding tables.
        {WithRows(Job(2, 2, 2, 8, 2)), {4}},
        {WithRows(WithWeight0(Job(4, 2, 3, 5, 2, 18))), {4, true, true}},
        {WithRows(Lending(Job(2, 3, 2, 8, 2))), {4}},
        {WithRows(Lending(Job(2, 2, 1, 8, 2))), {3}},
        {TablesAlone(Job(2, 2, 2, 8, 2)), {4, true, true}},
        {TablesAlone(WithWeight0(Job(4, 2, 3, 5, 2, 18))), {4}},
        {TablesAlone(Lending(Job(2, 3, 2, 8, 2))), {4}},
        // Evaluations, and changes of the learning rate.
        {WithRates(Job(2, 2, 2, 10, 2)), {4}},
        {WithRates(Job(3, 3, 3, 8, 1)), {4, false, true}},
        {Judged(Job(2, 2, 2, 20, 0)), {4}},
        {Judged(WithRates(Job(2, 2, 2, 20, 3))), {5, true, true}},
        {Lending(Judged(WithRates(Job(2, 2, 2, 20, 2)))), {4}},
    }),
    [](const auto& info) {
      return absl::StrCat(Name(info.param.job), "Every",
                          info.param.job.checkpoints->every_steps(),
                          NameOf(info.param.troubles));
    });

// ---- Asynchronous jobs ----

struct AsynchronousScenario {
  AsynchronousJob job;
  Troubles troubles;
};

class AsynchronousRecoveryTest
    : public ::testing::TestWithParam<AsynchronousScenario> {};

TEST_P(AsynchronousRecoveryTest, PromisesHoldUnderEverySchedule) {
  const AsynchronousJob& job = GetParam().job;
  RunSchedules(MakeJob(job), GetParam().troubles, job.workers,
               4 * job.workers * (job.depth + 1));
}

AsynchronousJob Asynchronous(uint32_t num_ps, uint32_t workers, uint32_t depth,
                             std::optional<uint32_t> bound, bool momentum,
                             uint64_t every) {
  AsynchronousJob job;
  job.num_ps = num_ps;
  job.workers = workers;
  job.depth = depth;
  job.bound = bound;
  job.momentum = momentum;
  job.tickets = 20;
  job.checkpoints = Every(every);
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, AsynchronousRecoveryTest,
    ::testing::ValuesIn(std::vector<AsynchronousScenario>{
        {Asynchronous(1, 1, 1, std::nullopt, true, 4), {3}},
        {Asynchronous(2, 2, 1, std::nullopt, true, 3), {4}},
        {Asynchronous(3, 3, 2, std::nullopt, false, 4), {4}},
        {Asynchronous(2, 3, 3, std::nullopt, true, 1), {4, true, true}},
        {Asynchronous(2, 2, 1, 0, false, 3), {4}},
        {Asynchronous(2, 2, 1, std::nullopt, true, 8), {2, false, false, true}},
        {Asynchronous(3, 3, 2, 1, true, 4), {5, true, true}},
        {Asynchronous(2, 2, 2, std::nullopt, false, 0), {3}},
        {WithRows(Asynchronous(2, 2, 1, std::nullopt, true, 3)), {4}},
        {WithRows(Asynchronous(3, 3, 2, 1, true, 4)), {5, true, true}},
        {WithRows(Lending(Asynchronous(2, 2, 2, std::nullopt, true, 3))), {4}},
        {TablesAlone(Asynchronous(3, 3, 2, 1, false, 4)), {5, true, true}},
        {TablesAlone(Lending(Asynchronous(2, 2, 1, std::nullopt, false, 3))),
         {4}},
        {Lending(Asynchronous(2, 2, 1, std::nullopt, true, 3)), {4}},
        {StartingAgain(Asynchronous(2, 2, 2, std::nullopt, true, 3)), {4}},
        {StartingAgain(WithRows(Lending(Asynchronous(2, 3, 1, 1, false, 3)))),
         {4}},
        {Lending(Asynchronous(1, 3, 2, std::nullopt, false, 4)), {4}},
    }),
    [](const auto& info) {
      return absl::StrCat(Name(info.param.job),
                          info.param.job.momentum ? "Momentum" : "", "Every",
                          info.param.job.checkpoints->every_steps(),
                          NameOf(info.param.troubles));
    });

}  // namespace
}  // namespace holdfast
