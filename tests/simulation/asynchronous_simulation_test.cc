// SPDX-License-Identifier: Apache-2.0

// The asynchronous protocol under a seeded scheduler: the real coordinator and
// shards, workers that follow docs/protocol/asynchronous.md, a network that
// delays, reorders, repeats and loses, and workers that die, fall silent for a
// while or leave at any moment. During each schedule the handing out of tickets
// is watched, and after it the promises are checked: each ticket is spent once,
// by one push, which every shard has applied once, and what anybody was told of
// a push is what became of it.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simulation/jobs.h"
#include "tests/simulation/simulation.h"
#include "tests/simulation/ticket_watch.h"

namespace holdfast {
namespace {

// Short compared with the longest delay of a message, so that live workers are
// fenced at times.
constexpr absl::Duration kLease = absl::Seconds(4);

struct Scenario {
  uint32_t num_ps = 1;
  uint32_t workers = 1;
  uint32_t depth = 1;
  std::optional<uint32_t> bound;
  Faults faults;
  // The maximum number of workers that die, fall silent or leave.
  int mishaps = 0;
  bool momentum = false;
  // Room on each shard for pushes that are not the next of their worker. If
  // absent, there is room for as many as workers may have.
  std::optional<uint32_t> extra_places;
  // At most 20.
  uint64_t tickets = 12;
  bool faulty = false;
  // With an embedding table.
  bool rows = false;
  // With an embedding table and no variables.
  bool tables_alone = false;
};

std::string Name(const Scenario& s) {
  return absl::StrCat(
      "P", s.num_ps, "W", s.workers, "D", s.depth,
      s.bound.has_value() ? absl::StrCat("S", *s.bound) : "",
      s.faults.lost > 0 ? "Lossy" : "", s.faults.repeated > 0 ? "Twice" : "",
      s.mishaps > 0 ? "Deaths" : "", s.momentum ? "Momentum" : "",
      s.extra_places.has_value() ? absl::StrCat("Extra", *s.extra_places) : "",
      s.faulty ? "Faulty" : "", s.rows ? "Rows" : "",
      s.tables_alone ? "TablesAlone" : "");
}

AsynchronousJob JobOf(const Scenario& s) {
  AsynchronousJob job;
  job.num_ps = s.num_ps;
  job.workers = s.workers;
  job.depth = s.depth;
  job.bound = s.bound;
  job.momentum = s.momentum;
  job.tickets = s.tickets;
  job.faulty = s.faulty;
  job.rows = s.rows;
  job.tables_alone = s.tables_alone;
  return job;
}

// The maximum number of bytes of pushes on one ps [A2].
int64_t MostStaged(const Scenario& s, const sim::Job& job) {
  const uint32_t extra = s.workers * (s.depth - 1);
  // A row is kept with its id and a pointer.
  const int64_t rows =
      s.rows || s.tables_alone
          ? sim::NumRows(job) *
                (sim::RowLength(job) * sizeof(float) + 2 * sizeof(uint64_t))
          : 0;
  return (sim::PushBytes(job) + rows) *
         (s.workers + s.extra_places.value_or(extra));
}

sim::Job MakeJob(const Scenario& s) {
  sim::Job job = MakeJob(JobOf(s));
  if (s.mishaps > 0) job.lease = kLease;
  if (s.extra_places.has_value()) {
    // Values, the slot of momentum, the next version and one that is being
    // read.
    job.memory_limit_bytes = 3 * sim::PushBytes(job) +
                             (s.momentum ? sizeof(float) : 0) +
                             MostStaged(s, job);
  }
  return job;
}

class AsynchronousSimulationTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(AsynchronousSimulationTest, PromisesHoldUnderEverySchedule) {
  const Schedules schedules = SchedulesToRun(200);
  const Scenario scenario = GetParam();
  const sim::Job job = MakeJob(scenario);
  // Sums over all schedules.
  uint64_t shut_out = 0, resolved = 0, handed_out_again = 0, refused = 0,
           refused_applies = 0;
  for (uint64_t i = 0; i < schedules.count; ++i) {
    const uint64_t seed = schedules.first + i;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomScheduler::Options options;
    options.seed = seed;
    options.faults = scenario.faults;
    options.keeps_ps = true;
    Troubles troubles;
    troubles.mishaps = scenario.mishaps;
    troubles.of_workers = true;
    Simulation simulation(job, options, troubles, scenario.workers,
                          scenario.workers);
    sim::World& world = simulation.world();
    TicketWatch watch(&world, scenario.depth, scenario.bound,
                      MostStaged(scenario, job));
    bool checked = false;
    simulation.Run([&] {
      watch.AfterEvent();
      if (checked || world.phase() != proto::DONE) return;
      checked = true;
      watch.CheckValues();
    });
    ASSERT_EQ(world.violation(), "");
    ASSERT_EQ(world.phase(), proto::DONE);
    watch.CheckStatus();
    ASSERT_EQ(world.violation(), "");
    ASSERT_THAT(world.parked(), ::testing::IsEmpty())
        << "calls are parked for ever";
    // At most wait_ms and a tick.
    ASSERT_LE(world.longest_wait(), absl::Milliseconds(3100));
    if (scenario.mishaps == 0) {
      // Between the pull and the application of worker i's k-th push, the clock
      // of each other worker advances from at least k - 1 - s to at most k + s;
      // of its own pushes, those in the pipeline come in between.
      const uint64_t of_others =
          scenario.bound.has_value() ? 2 * *scenario.bound + 1 : 1'000'000;
      ASSERT_LE(watch.max_staleness(),
                (scenario.workers - 1) * of_others + scenario.depth - 1);
    }
    shut_out += simulation.num_shut_out();
    resolved += watch.resolved_pushes();
    handed_out_again += watch.num_given() - watch.counted().size();
    refused += world.errors_heard(absl::StatusCode::kResourceExhausted);
    refused_applies +=
        world.errors_heard(absl::StatusCode::kFailedPrecondition);
  }
  if (scenario.mishaps > 0) {
    EXPECT_GT(shut_out, 0u);
    EXPECT_GT(resolved, 0u);
    EXPECT_GT(handed_out_again, 0u);
  } else {
    EXPECT_EQ(shut_out + resolved + handed_out_again, 0u);
  }
  if (scenario.extra_places.has_value()) {
    EXPECT_GT(refused, 0u);
  }
  EXPECT_EQ(refused_applies > 0, scenario.faulty);
}

constexpr Faults kNone = {0, 0};
constexpr Faults kSome = {50, 100};
constexpr Faults kMany = {100, 300};
constexpr std::nullopt_t kUnbounded = std::nullopt;

INSTANTIATE_TEST_SUITE_P(
    Scenarios, AsynchronousSimulationTest,
    ::testing::ValuesIn(std::vector<Scenario>{
        {1, 1, 1, kUnbounded, kNone, 0, false, {}, 20},
        {2, 1, 3, kUnbounded, kSome},
        {2, 2, 1, kUnbounded, kSome},
        {3, 4, 2, kUnbounded, kMany, 0, true},
        {2, 2, 1, 0, kSome},
        {2, 3, 3, 0, kSome},
        {1, 4, 2, 1, kSome, 0, true},
        {2, 3, 3, 3, kSome},
        {1, 1, 1, kUnbounded, kNone, 2},
        {2, 1, 2, kUnbounded, kSome, 3},
        {2, 2, 1, kUnbounded, kSome, 3},
        {2, 3, 3, kUnbounded, kSome, 4, true},
        {3, 4, 2, kUnbounded, kMany, 4},
        {2, 2, 2, 0, kSome, 3},
        {2, 3, 1, 1, kSome, 3, true},
        {3, 4, 3, 3, kSome, 4},
        // Little memory.
        {2, 4, 3, kUnbounded, kSome, 0, false, 0},
        {2, 1, 3, kUnbounded, kSome, 3, false, 0},
        {2, 3, 3, 1, kSome, 3, true, 0},
        {3, 2, 3, kUnbounded, kSome, 3, false, 1},
        // Embedding tables.
        {2, 2, 1, kUnbounded, kSome, 0, true, {}, 12, false, true},
        {3, 4, 2, 1, kMany, 4, false, {}, 12, false, true},
        {1, 2, 1, kUnbounded, kSome, 0, false, {}, 12, false, false, true},
        {3, 4, 2, 1, kMany, 4, false, {}, 12, false, false, true},
        // Faulty workers [P2, P3].
        {2, 2, 1, kUnbounded, kSome, 3, false, {}, 12, true},
        {3, 3, 3, 3, kSome, 4, true, {}, 12, true},
    }),
    [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace holdfast
