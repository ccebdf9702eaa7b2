// The synchronous protocol under a seeded scheduler: the real coordinator and
// shards, workers that follow docs/life_of_a_step.md, and a network that
// delays, reorders, repeats and loses. After each schedule the promises are
// checked: a push counts once on every shard or nowhere, as its verdict says,
// and every shard commits the same steps, to the same bits. Where examples are
// by ticket, each ticket counts once.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/protocol/push_id.h"
#include "tests/simulation/simulation.h"
#include "tests/simulation/synchronous_job.h"

namespace holdfast {
namespace {

using Scenario = SynchronousJob;

// The cluster of one schedule, where nobody is lost.
class Simulation : public SynchronousCluster {
 public:
  using SynchronousCluster::SynchronousCluster;

  void OnSent(const ShardRequest& request) override {
    EXPECT_FALSE(std::holds_alternative<proto::FenceRequest>(request))
        << "nobody is to be shut out";
    EXPECT_FALSE(std::holds_alternative<proto::ResolveRequest>(request))
        << "nothing is to be resolved";
    SynchronousCluster::OnSent(request);
  }

  void OnTick() override {
    if (waiting_for_tickets.empty()) return;
    // Those of late pushes come back.
    EXPECT_EQ(tickets[1].size(), job.tickets + Status().pushes().stale())
        << "somebody waits for a ticket, and there is one";
  }
};

class ProtocolSimulationTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(ProtocolSimulationTest, PromisesHoldUnderEverySchedule) {
  constexpr uint64_t kSchedules = 500;
  const Scenario scenario = GetParam();
  std::set<std::string> results;
  uint64_t stale = 0;
  uint64_t refused_offers = 0;
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation sim(scenario, seed);
    std::vector<std::unique_ptr<SynchronousWorker>> workers;
    for (uint32_t i = 0; i < scenario.m; ++i) {
      workers.push_back(
          std::make_unique<SynchronousWorker>(&sim, i, /*nonce=*/i + 1));
      sim.scheduler.Soon([worker = workers.back().get()] { worker->Start(); });
    }
    sim.Start();

    const absl::Time bound = sim.scheduler.Now() + absl::Hours(1);
    const auto all_gone = [&] {
      return std::all_of(workers.begin(), workers.end(),
                         [](const auto& w) { return w->gone(); });
    };
    while (!(all_gone() && sim.coordinator->finished()) &&
           sim.scheduler.Now() < bound && !HasFatalFailure()) {
      ASSERT_TRUE(sim.scheduler.RunOne());
    }

    // It ended, and in order.
    ASSERT_LT(sim.scheduler.Now(), bound) << "hangs";
    ASSERT_EQ(sim.coordinator->state().phase(), proto::DONE)
        << sim.coordinator->state().reason();
    ASSERT_THAT(sim.network.unanswered(), ::testing::IsEmpty());
    // wait_ms, and a tick.
    ASSERT_LE(sim.network.longest_wait(), absl::Milliseconds(1100));
    for (const auto& shard : sim.shards) {
      ASSERT_EQ(shard->state().phase(), proto::DONE);
      ASSERT_EQ(shard->version().value(), scenario.steps);
      ASSERT_EQ(shard->staged_bytes(), 0);
    }

    // Every step is N contributions to seats of their own, in order; the last
    // one what tickets are left.
    ASSERT_EQ(sim.steps[1].size(), scenario.steps);
    std::set<PushId> counted;
    uint64_t examples = 0;
    for (const auto& [step, contributions] : sim.steps[1]) {
      const bool is_last = step + 1 == scenario.steps;
      ASSERT_EQ(contributions.size(), scenario.tickets > 0 && is_last
                                          ? scenario.tickets - step * scenario.n
                                          : scenario.n);
      for (size_t i = 0; i < contributions.size(); ++i) {
        const auto& c = contributions[i];
        ASSERT_EQ(c.seat() % scenario.m, c.worker().index());
        if (i > 0) {
          ASSERT_LT(contributions[i - 1].seat(), c.seat());
        }
        ASSERT_TRUE(counted.insert(PushOf(c)).second) << "a push counted twice";
        examples += sim.BatchOf(1, step, c).examples;
      }
    }
    if (scenario.tickets > 0) {
      std::set<uint64_t> spent;
      for (const PushId& push : counted) {
        const uint64_t ticket = sim.tickets[1].at(push);
        ASSERT_TRUE(spent.insert(ticket).second)
            << "ticket " << ticket << " counted twice";
      }
      ASSERT_EQ(spent.size(), scenario.tickets);
      ASSERT_EQ(*spent.rbegin(), scenario.tickets - 1);
    }
    // A verdict says what happened, to each push.
    const proto::GetStatusResponse status = sim.Status();
    uint64_t told_accepted = 0, told_stale = 0, not_finite = 0;
    for (const auto& [push, verdict] : sim.told[1]) {
      const bool counts = counted.count(push) > 0;
      ASSERT_EQ(verdict, counts ? proto::ACCEPTED : proto::STALE)
          << push.ToString();
      ++(counts ? told_accepted : told_stale);
    }
    ASSERT_EQ(told_accepted, counted.size());
    ASSERT_EQ(status.pushes().accepted(), told_accepted);
    ASSERT_EQ(status.pushes().stale(), told_stale);
    ASSERT_EQ(status.pushes().duplicate(), 0u);
    for (const auto& [step, contributions] : sim.steps[1]) {
      for (const auto& c : contributions) {
        if (sim.BatchOf(1, step, c).not_finite()) ++not_finite;
      }
    }
    ASSERT_EQ(status.pushes().not_finite(), not_finite);
    ASSERT_EQ(status.examples(), examples);
    stale += told_stale;
    refused_offers += sim.refused_offers;

    // The values are those of the steps, to the bit, on every shard.
    const Values values = sim.ReadAll();
    TrainingState state = SynchronousCluster::First();
    for (const auto& [step, contributions] : sim.steps[1]) {
      sim.MakeStep(1, step, &state);
    }
    ASSERT_EQ(status.loss_scale(), state.loss_scale);
    const Values& expected = state.values;
    ASSERT_EQ(values.size(), expected.size());
    std::string bits;
    for (const auto& [name, v] : expected) {
      ASSERT_EQ(values.at(name).size(), v.size());
      ASSERT_EQ(std::memcmp(values.at(name).data(), v.data(),
                            v.size() * sizeof(float)),
                0)
          << name;
      bits.append(reinterpret_cast<const char*>(v.data()),
                  v.size() * sizeof(float));
    }
    results.insert(bits);
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

constexpr auto kSum = proto::Consistency::SUM;

constexpr auto kMean = proto::Consistency::MEAN;

INSTANTIATE_TEST_SUITE_P(
    Scenarios, ProtocolSimulationTest,
    ::testing::ValuesIn(std::vector<Scenario>{
        {1, 1, 1, 4, {0, 0}},
        // Every third step has weight 0 alone.
        {1, 1, 2, 5, {50, 100}, true},
        {2, 2, 1, 4, {0, 100}},
        {2, 2, 2, 4, {0, 100}},
        {2, 2, 2, 4, {50, 100}},
        {2, 2, 3, 4, {50, 100}, true},
        {3, 3, 2, 4, {50, 100}, true, 0, 0, 0, {}, kSum},
        {4, 2, 2, 3, {50, 100}},
        {6, 3, 2, 3, {30, 200}, true},
        // Some have a seat more than others.
        {3, 2, 2, 3, {50, 100}},
        {5, 3, 3, 3, {30, 200}, true},
        {1, 2, 2, 5, {50, 100}},
        {2, 3, 3, 5, {50, 100}},
        {2, 3, 2, 5, {30, 200}, true},
        // By ticket. The last step is of N, or of fewer.
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
    }),
    [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace holdfast
