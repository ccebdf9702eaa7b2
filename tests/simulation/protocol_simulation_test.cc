// SPDX-License-Identifier: Apache-2.0

// The synchronous protocol under a seeded scheduler: the real coordinator and
// shards, workers that follow docs/protocol/life_of_a_step.md, and a network
// that delays, reorders, repeats and loses messages. The world checks the
// promises all the time: a push counts once on every shard or on none, as its
// verdict says, and every shard commits the same steps, to the same bits. After
// each schedule, the reported status is checked.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/protocol/push_id.h"
#include "tests/simulation/jobs.h"
#include "tests/simulation/simulation.h"

namespace holdfast {
namespace {

using Scenario = SynchronousJob;

// Checks specific to jobs in which no worker is lost.
class Watch : public sim::Observer {
 public:
  explicit Watch(sim::World* world) : world_(world) {
    world->AddObserver(this);
  }

  void OnSent(sim::Node from, sim::Node to,
              const google::protobuf::Message& request) override {
    if (sim::As<proto::FenceRequest>(request) != nullptr ||
        sim::As<proto::ResolveRequest>(request) != nullptr) {
      world_->Violate("no worker may be fenced");
    }
  }
  void OnArrival(sim::Node from, sim::Node to,
                 const google::protobuf::Message& request) override {
    if (sim::As<proto::TakeTicketRequest>(request) != nullptr) ++waiting_;
  }
  void OnAnswered(sim::Node from, sim::Node to,
                  const google::protobuf::Message& request,
                  const google::protobuf::Message* response) override {
    if (sim::As<proto::TakeTicketRequest>(request) != nullptr) --waiting_;
  }
  void OnTick() override {
    if (waiting_ == 0) return;
    // Tickets of late pushes come back.
    const auto taken = world_->oracle().tickets().find(1);
    const size_t handed_out =
        taken == world_->oracle().tickets().end() ? 0 : taken->second.size();
    if (handed_out !=
        world_->job().tickets() + world_->Status().pushes().stale()) {
      world_->Violate("a worker waits for a ticket although there is one");
    }
  }

 private:
  sim::World* const world_;
  int waiting_ = 0;
};

class ProtocolSimulationTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(ProtocolSimulationTest, PromisesHoldUnderEverySchedule) {
  const Schedules schedules = SchedulesToRun(200);
  const Scenario scenario = GetParam();
  const sim::Job job = MakeJob(scenario);
  std::set<sim::Values> results;
  uint64_t stale = 0;
  uint64_t refused_offers = 0;
  for (uint64_t i = 0; i < schedules.count; ++i) {
    const uint64_t seed = schedules.first + i;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomScheduler::Options options;
    options.seed = seed;
    options.faults = scenario.faults;
    options.keeps_ps = true;
    Simulation simulation(job, options, {/*mishaps=*/0}, scenario.m,
                          scenario.m);
    sim::World& world = simulation.world();
    const Watch watch(&world);
    simulation.Run();

    // The job ended in order.
    ASSERT_EQ(world.violation(), "");
    ASSERT_EQ(world.phase(), proto::DONE);
    ASSERT_THAT(world.parked(), ::testing::IsEmpty());
    // At most wait_ms and a tick.
    ASSERT_LE(world.longest_wait(), absl::Milliseconds(1100));
    for (uint32_t ps = 0; ps < world.num_ps(); ++ps) {
      ASSERT_EQ(world.shard(ps)->state().phase(), proto::DONE);
      ASSERT_EQ(world.shard(ps)->version().value(), scenario.steps);
      ASSERT_EQ(world.shard(ps)->staged_bytes(), 0);
    }

    // Every step has contributions to distinct seats; the last step has the
    // tickets that are left.
    const sim::Oracle& oracle = world.oracle();
    ASSERT_EQ(oracle.steps().size(), scenario.steps);
    std::set<PushId> counted;
    uint64_t examples = 0;
    uint64_t not_finite = 0;
    for (const auto& [cut, contributions] : oracle.steps()) {
      const uint64_t step = cut.second;
      const bool is_last = step + 1 == scenario.steps;
      ASSERT_EQ(contributions.size(), scenario.tickets > 0 && is_last
                                          ? scenario.tickets - step * scenario.n
                                          : scenario.n);
      for (const auto& c : contributions) {
        ASSERT_EQ(c.seat() % scenario.m, c.worker().index());
        counted.insert(sim::Oracle::PushOf(c));
        const sim::Batch batch = oracle.BatchOf(1, step, c);
        examples += batch.examples;
        if (batch.not_finite()) ++not_finite;
      }
    }
    if (scenario.tickets > 0) {
      ASSERT_EQ(counted.size(), scenario.tickets);
    }
    // The verdict on each push says what became of it.
    const proto::GetStatusResponse status = world.Status();
    uint64_t told_accepted = 0, told_stale = 0;
    for (const auto& [push, verdict] : oracle.told().at(1)) {
      const bool counts = counted.count(push) > 0;
      ASSERT_EQ(verdict, counts ? proto::ACCEPTED : proto::STALE)
          << push.ToString();
      ++(counts ? told_accepted : told_stale);
    }
    ASSERT_EQ(told_accepted, counted.size());
    ASSERT_EQ(status.pushes().accepted(), told_accepted);
    ASSERT_EQ(status.pushes().stale(), told_stale);
    ASSERT_EQ(status.pushes().duplicate(), 0u);
    ASSERT_EQ(status.pushes().not_finite(), not_finite);
    ASSERT_EQ(status.examples(), examples);
    stale += told_stale;
    refused_offers += world.errors_heard(absl::StatusCode::kFailedPrecondition);

    // On every shard, the values are those of the steps, to the bit.
    const sim::Values* const expected = oracle.ValuesAt({1, scenario.steps});
    ASSERT_NE(expected, nullptr);
    ASSERT_EQ(world.ReadAll(), *expected);
    results.insert(*expected);
  }
  EXPECT_EQ(refused_offers > 0, scenario.faulty);
  if (scenario.n < scenario.m) {
    EXPECT_GT(stale, 0u) << "no backup replica ever came late";
  } else {
    EXPECT_EQ(stale, 0u);
  }
  if (scenario.n >= scenario.m && scenario.tickets == 0) {
    EXPECT_EQ(results.size(), 1u) << "the schedule shows in the result";
  }
}

// Workers are mostly clients that lend.
Scenario WithRows(Scenario scenario) {
  scenario.rows = true;
  return scenario;
}

Scenario TablesAlone(Scenario scenario) {
  scenario.tables_alone = true;
  return scenario;
}

Scenario Lending(Scenario scenario) {
  scenario.lends = true;
  scenario.faults.not_lent = 200;
  return scenario;
}

Scenario Early(Scenario scenario) {
  scenario.early = true;
  return scenario;
}

Scenario StartingAgain(Scenario scenario) {
  scenario.starts_again = true;
  return scenario;
}

constexpr auto kSum = proto::Consistency::SUM;

constexpr auto kMean = proto::Consistency::MEAN;

INSTANTIATE_TEST_SUITE_P(
    Scenarios, ProtocolSimulationTest,
    ::testing::ValuesIn(std::vector<Scenario>{
        {1, 1, 1, 4, {0, 0}},
        // All contributions of every third step have weight 0.
        {1, 1, 2, 5, {50, 100}, true},
        {2, 2, 1, 4, {0, 100}},
        {2, 2, 2, 4, {0, 100}},
        {2, 2, 2, 4, {50, 100}},
        {2, 2, 3, 4, {50, 100}, true},
        {3, 3, 2, 4, {50, 100}, true, 0, 0, 0, {}, kSum},
        {4, 2, 2, 3, {50, 100}},
        {6, 3, 2, 3, {30, 200}, true},
        // Some workers have one seat more than others.
        {3, 2, 2, 3, {50, 100}},
        {5, 3, 3, 3, {30, 200}, true},
        {1, 2, 2, 5, {50, 100}},
        {2, 3, 3, 5, {50, 100}},
        {2, 3, 2, 5, {30, 200}, true},
        // By ticket. The last step is made of N contributions, or fewer.
        {2, 2, 2, 4, {50, 100}, false, 8},
        {3, 3, 2, 3, {50, 100}, true, 7},
        {4, 2, 2, 3, {50, 100}, false, 12},
        {4, 2, 3, 3, {50, 100}, true, 9},
        {6, 3, 2, 2, {30, 200}, false, 11},
        {3, 2, 2, 4, {50, 100}, false, 12},
        {5, 3, 2, 3, {50, 100}, true, 11},
        {1, 2, 2, 5, {50, 100}, false, 5},
        {2, 3, 2, 4, {50, 100}, true, 7},
        {2, 4, 3, 4, {30, 200}, false, 8},
        // Faulty workers [P1].
        {2, 2, 1, 4, {50, 100}, false, 0, 0, 0, {}, kMean, true},
        {2, 3, 3, 5, {50, 100}, true, 0, 0, 0, {}, kMean, true},
        {4, 2, 3, 3, {50, 100}, true, 9, 0, 0, {}, kMean, true},
        // Embedding tables.
        WithRows({2, 2, 1, 4, {50, 100}}),
        WithRows({2, 2, 2, 4, {50, 100}, true}),
        WithRows({4, 2, 3, 3, {50, 100}, true, 9}),
        WithRows({2, 3, 3, 5, {50, 100}}),
        WithRows(Lending({2, 2, 1, 4, {50, 100}})),
        WithRows(Lending({2, 3, 2, 5, {50, 200}})),
        TablesAlone({2, 2, 1, 4, {50, 100}}),
        TablesAlone({4, 2, 3, 3, {50, 100}, true, 9}),
        TablesAlone({2, 3, 3, 5, {50, 100}}),
        TablesAlone(Lending({2, 2, 1, 4, {50, 100}})),
        TablesAlone(Lending({2, 3, 2, 5, {50, 200}})),
        // Pushes that cannot be lent start over in more parts [H8].
        Lending({2, 2, 1, 4, {50, 100}}),
        Lending({2, 2, 2, 4, {50, 100}, true}),
        Lending({4, 2, 2, 3, {50, 100}}),
        Lending({2, 3, 2, 5, {50, 200}}),
        Lending({3, 3, 2, 3, {50, 100}, true, 7}),
        // Gradients that were handed in are replaced by others.
        StartingAgain({2, 2, 2, 4, {50, 200}}),
        StartingAgain({4, 2, 3, 3, {50, 200}, true}),
        StartingAgain({3, 3, 2, 3, {50, 100}, true, 7}),
        StartingAgain({2, 3, 2, 5, {50, 100}}),
        StartingAgain(Lending({2, 2, 2, 4, {50, 200}})),
        StartingAgain(WithRows({2, 2, 2, 4, {50, 200}})),
        StartingAgain(WithRows(Lending({2, 3, 2, 5, {50, 200}}))),
        // Gradients are computed while values arrive.
        Early({2, 2, 2, 4, {50, 100}, true}),
        Early({4, 2, 2, 3, {50, 100}}),
        Early({2, 3, 3, 5, {50, 100}}),
        Early(Lending({2, 2, 2, 4, {50, 100}})),
        Early(Lending({1, 3, 2, 5, {50, 200}})),
    }),
    [](const auto& info) { return Name(info.param); });

// A worker whose push has no room in a table, and whose program takes no notice
// of the error, ends the job at once, whatever becomes of messages.
TEST(FullTableSimulationTest, TheJobFailsWhenAPushIsRefused_B13) {
  Scenario scenario = WithRows(Lending({2, 2, 2, 4, {50, 100}}));
  sim::Job job = MakeJob(scenario);
  job.fails_with = "is full";
  const auto simulate = [&](uint64_t seed, absl::Duration* took) {
    RandomScheduler::Options options;
    options.seed = seed;
    options.faults = scenario.faults;
    options.keeps_ps = true;
    Simulation simulation(job, options, {/*mishaps=*/0}, scenario.m,
                          scenario.m);
    sim::World& world = simulation.world();
    std::optional<absl::Time> refused;
    std::optional<absl::Time> failed;
    simulation.Run([&] {
      if (!refused.has_value() &&
          world.errors_heard(absl::StatusCode::kFailedPrecondition) > 0) {
        refused = world.Now();
      }
      if (!failed.has_value() && world.phase() == proto::FAILED) {
        failed = world.Now();
      }
    });
    *took = refused.has_value() && failed.has_value()
                ? *failed - *refused
                : absl::InfiniteDuration();
    return world.violation();
  };
  // The least memory with which the job begins leaves no room for rows.
  absl::Duration took;
  for (job.memory_limit_bytes = 8;; job.memory_limit_bytes += 8) {
    const std::string violation = simulate(1, &took);
    if (violation.empty()) break;
    ASSERT_THAT(violation, ::testing::HasSubstr("memory"));
  }
  const Schedules schedules = SchedulesToRun(200);
  for (uint64_t i = 0; i < schedules.count; ++i) {
    const uint64_t seed = schedules.first + i;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ASSERT_EQ(simulate(seed, &took), "");
    ASSERT_LT(took, absl::Seconds(30));
  }
}

}  // namespace
}  // namespace holdfast
