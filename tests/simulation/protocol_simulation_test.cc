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
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simulation/simulation.h"

namespace holdfast {
namespace {

struct Scenario {
  uint32_t n = 1;
  uint32_t m = 1;
  uint32_t num_ps = 1;
  uint64_t steps = 4;
  Faults faults;
  // Some contributions have weight 0.
  bool empty_handed = false;
  // 0: examples by step.
  uint64_t tickets = 0;
};

std::string Name(const Scenario& s) {
  return absl::StrCat(
      "N", s.n, "M", s.m, "P", s.num_ps, s.faults.lost > 0 ? "Lossy" : "",
      s.faults.repeated > 0 ? "Twice" : "", s.empty_handed ? "Weight0" : "",
      s.tickets > 0 ? absl::StrCat("T", s.tickets) : "");
}

const std::vector<std::pair<std::string, std::vector<int64_t>>> kVariables = {
    {"dense/kernel", {2, 3}}, {"dense/bias", {3}}, {"scale", {}}};

size_t Elements(const std::vector<int64_t>& shape) {
  size_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

// The examples behind a gradient.
struct Batch {
  // Unlike for each.
  uint64_t number;
  // 0 means weight 0.
  uint64_t examples;
};

Batch BatchOfSeat(const Scenario& scenario, uint64_t step, uint32_t seat) {
  const bool empty = scenario.empty_handed && (step + 2 * seat) % 3 == 0;
  return {5 * seat + 7 * step, empty ? 0 : 10 + 3 * seat};
}

Batch BatchOfTicket(const Scenario& scenario, uint64_t index) {
  const bool empty = scenario.empty_handed && index % 3 == 0;
  return {7 * index, empty ? 0 : 10 + 3 * (index % 4)};
}

// What a worker computes on a batch: fractions, so that another order of
// summation, another weight, or one more or less of them gives other bits.
float GradientElement(const Batch& batch, const std::string& variable, size_t i,
                      float value) {
  const float share = 1.0f / static_cast<float>(3 + batch.number + 11 * i);
  return value * 0.3f + share + static_cast<float>(variable.size()) * 0.01f;
}

proto::Declaration MakeJob(const Scenario& scenario) {
  proto::Declaration declaration;
  for (const auto& [name, shape] : kVariables) {
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name(name);
    variable.mutable_shape()->Assign(shape.begin(), shape.end());
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_constant()->set_value(0.5f);
  }
  proto::Variable& frozen = *declaration.add_variables();
  frozen = declaration.variables(0);
  frozen.set_name("frozen");
  frozen.set_trainable(false);
  declaration.add_optimizers()->set_learning_rate(0.1f);
  declaration.mutable_optimizers(0)->mutable_momentum()->set_momentum(0.9f);
  auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(scenario.n);
  mode.set_total_num_replicas(scenario.m);
  declaration.set_total_steps(scenario.steps);
  if (scenario.tickets > 0) {
    declaration.set_examples(proto::BY_TICKET);
    declaration.set_total_tickets(scenario.tickets);
  }
  return declaration;
}

SimulatedCluster::Options ClusterOptions(const Scenario& scenario,
                                         uint64_t seed) {
  SimulatedCluster::Options options;
  options.seed = seed;
  options.faults = scenario.faults;
  options.num_ps = scenario.num_ps;
  options.num_workers = scenario.m;
  return options;
}

// The whole cluster of one schedule.
class Simulation : public SimulatedCluster {
 public:
  Simulation(const Scenario& scenario, uint64_t seed)
      : SimulatedCluster(ClusterOptions(scenario, seed)), scenario(scenario) {}

  void Commit(uint32_t ps, const proto::CommitRequest& request,
              Reply<proto::CommitResponse> reply) override {
    const auto [it, fresh] =
        commits_.emplace(request.step(), request.SerializeAsString());
    if (!fresh && it->second != request.SerializeAsString()) {
      ADD_FAILURE() << "two commits of step " << request.step();
    }
    steps[request.step()].assign(request.contributions().begin(),
                                 request.contributions().end());
    SimulatedCluster::Commit(ps, request, std::move(reply));
  }
  void Fence(uint32_t, const proto::FenceRequest&,
             Reply<proto::FenceResponse>) override {
    ADD_FAILURE() << "nobody is to be shut out of a synchronous job";
  }
  void Resolve(uint32_t, const proto::ResolveRequest&,
               Reply<proto::ResolveResponse>) override {
    ADD_FAILURE() << "nothing is to be resolved in a synchronous job";
  }

  void OnTicket(const PushId& push, uint64_t ticket) override {
    const Push key{push.from.worker.index, push.sequence.value()};
    EXPECT_EQ(tickets.emplace(key, ticket).first->second, ticket)
        << push.ToString() << " has another ticket";
  }

  void OnTick() override {
    if (waiting_for_tickets.empty()) return;
    // Those of late pushes come back.
    EXPECT_EQ(tickets.size(), scenario.tickets + Status().pushes().stale())
        << "somebody waits for a ticket, and there is one";
  }

  // Of contributions.
  Batch BatchOf(uint64_t step, const proto::StepContribution& c) const {
    if (scenario.tickets == 0) return BatchOfSeat(scenario, step, c.seat());
    const auto ticket = tickets.find({c.worker().index(), c.sequence()});
    if (ticket == tickets.end()) {
      ADD_FAILURE() << "a push without a ticket counts";
      return {0, 0};
    }
    return BatchOfTicket(scenario, ticket->second);
  }

  const Scenario scenario;
  // What the coordinator committed.
  std::map<uint64_t, std::vector<proto::StepContribution>> steps;
  using Push = std::pair<uint32_t, uint64_t>;  // worker, sequence
  // That were handed out.
  std::map<Push, uint64_t> tickets;

 private:
  std::map<uint64_t, std::string> commits_;
};

// A worker that follows docs/life_of_a_step.md.
class Worker : public SimulatedWorker {
 public:
  Worker(Simulation* sim, uint32_t index)
      : SimulatedWorker(sim, index, /*nonce=*/index + 1), sim_(sim) {}

  bool gone() const { return gone_; }
  // Verdicts, by sequence.
  const std::map<uint64_t, proto::Verdict>& told() const { return told_; }

 private:
  proto::Declaration MakeDeclaration() const override {
    return MakeJob(sim_->scenario);
  }

  void OnPlaced() override { PullAll(0); }

  // [R7]: all shards at one version, at or above `version`.
  void PullAll(uint64_t version) {
    pulled_.clear();
    for (uint32_t ps = 0; ps < num_ps(); ++ps) PullFrom(ps, version);
  }

  void PullFrom(uint32_t ps, uint64_t version) {
    AskShard<proto::PullRequest, PullReply>(
        ps, &Shard::Pull, PullOf(ps, version),
        [this, ps, version](const absl::StatusOr<PullReply>& reply) {
          ASSERT_TRUE(reply.ok()) << reply.status();
          if (reply->version.value() < version) return PullFrom(ps, version);
          pulled_[ps] = reply->version.value();
          Keep(*reply);
          if (pulled_.size() < num_ps()) return;
          uint64_t highest = 0;
          for (const auto& [p, v] : pulled_) highest = std::max(highest, v);
          std::vector<uint32_t> laggards;
          for (const auto& [p, v] : pulled_) {
            if (v < highest) laggards.push_back(p);
          }
          if (laggards.empty()) return ComputeStep(highest);
          for (uint32_t laggard : laggards) pulled_.erase(laggard);
          for (uint32_t laggard : laggards) PullFrom(laggard, highest);
        });
  }

  void ComputeStep(uint64_t step) {
    if (step >= sim_->scenario.steps) return Leave();
    step_ = step;
    seat_ = index();
    open_offers_ = 0;
    pushed_all_ = false;
    NextSeat();
  }

  // Pushes and offers one own seat after the other, without waiting for
  // verdicts [S1].
  void NextSeat() {
    const uint32_t seats = std::max(sim_->scenario.n, sim_->scenario.m);
    if (seat_ >= seats) return EndSeats();
    if (sim_->scenario.tickets == 0) {
      ++sequence_;
      return PushSeat(BatchOfSeat(sim_->scenario, step_, seat_));
    }
    if (ticket_.has_value()) {  // taken for a step that had closed
      const uint64_t ticket = *ticket_;
      ticket_.reset();
      return PushSeat(BatchOfTicket(sim_->scenario, ticket));
    }
    ++sequence_;
    TakeTicket();
  }

  void EndSeats() {
    pushed_all_ = true;
    NextWhenTold();
  }

  void TakeTicket() {
    proto::TakeTicketRequest request;
    *request.mutable_sender() = sender();
    request.set_sequence(sequence_);
    request.set_acked_through(acked_through_);
    request.set_wait_ms(1000);
    AskTicket(request, [this](const auto& response) {
      ASSERT_TRUE(response.ok()) << response.status();
      if (!response->has_ticket()) {
        if (response->state().phase() == proto::DONE) return EndSeats();
        return TakeTicket();
      }
      const uint64_t ticket = response->ticket().index();
      // Some go on with what they have, and come late.
      if (response->global_step() > step_ && sim_->scheduler.Random(4) > 0) {
        ticket_ = ticket;
        return PullAll(response->global_step());
      }
      PushSeat(BatchOfTicket(sim_->scenario, ticket));
    });
  }

  void PushSeat(const Batch& batch) {
    const uint64_t sequence = sequence_;
    if (batch.examples == 0) return OfferSeat(sequence, batch.examples);
    Values gradient;
    for (const auto& [name, shape] : kVariables) {
      std::vector<float>& g = gradient[name];
      for (size_t i = 0; i < Elements(shape); ++i) {
        g.push_back(GradientElement(batch, name, i, values().at(name)[i]));
      }
    }
    outstanding_ = 0;
    for (uint32_t ps = 0; ps < num_ps(); ++ps) {
      for (const PushPart& part :
           CutIntoParts(ps, gradient, PushSequence(sequence), GlobalStep(step_),
                        PushSequence(acked_through_))) {
        ++outstanding_;
        AskPush(ps, part, [=](const auto& response) {
          ASSERT_TRUE(response.ok()) << response.status();
          // A push that came too late is offered all the same: the
          // coordinator's verdict is the one that counts.
          if (--outstanding_ == 0) OfferSeat(sequence, batch.examples);
        });
      }
    }
  }

  void OfferSeat(uint64_t sequence, uint64_t examples) {
    proto::ContributeRequest request;
    *request.mutable_sender() = sender();
    request.set_step(step_);
    request.set_seat(seat_);
    request.set_sequence(sequence);
    request.set_examples(examples);
    request.set_loss(1.0);
    request.set_acked_through(acked_through_);
    request.set_wait_ms(1000);
    ++open_offers_;
    SendOffer(request);
    seat_ += sim_->scenario.m;
    NextSeat();
  }

  void SendOffer(const proto::ContributeRequest& request) {
    AskCoordinator<proto::ContributeRequest, proto::ContributeResponse>(
        &Coordinator::Contribute, request, [=](const auto& response) {
          ASSERT_TRUE(response.ok()) << response.status();
          if (response->verdict() == proto::VERDICT_UNSPECIFIED) {
            return SendOffer(request);
          }
          told_[request.sequence()] = response->verdict();
          while (told_.count(acked_through_ + 1) > 0) ++acked_through_;
          --open_offers_;
          NextWhenTold();
        });
  }

  void NextWhenTold() {
    if (pushed_all_ && open_offers_ == 0) {
      pushed_all_ = false;
      PullAll(step_ + 1);
    }
  }

  void Leave() {
    proto::LeaveRequest request;
    *request.mutable_sender() = sender();
    AskCoordinator<proto::LeaveRequest, proto::LeaveResponse>(
        &Coordinator::Leave, request, [this](const auto& response) {
          ASSERT_TRUE(response.ok()) << response.status();
          gone_ = true;
        });
  }

  Simulation* const sim_;
  std::map<uint32_t, uint64_t> pulled_;
  uint64_t step_ = 0;
  uint32_t seat_ = 0;
  uint64_t sequence_ = 0;
  // Held while a newer version is pulled for it.
  std::optional<uint64_t> ticket_;
  uint64_t acked_through_ = 0;
  int outstanding_ = 0;
  int open_offers_ = 0;
  bool pushed_all_ = false;
  bool gone_ = false;
  std::map<uint64_t, proto::Verdict> told_;
};

// What the variables must be after all steps, computed apart from the store:
// one loop over all elements, the mean in the order of S, TensorFlow's
// momentum.
Values Oracle(const Simulation& sim) {
  Values values, accumulators;
  for (const auto& [name, shape] : kVariables) {
    values[name].assign(Elements(shape), 0.5f);
    accumulators[name].assign(Elements(shape), 0.0f);
  }
  values["frozen"].assign(Elements(kVariables[0].second), 0.5f);
  for (const auto& [step, contributions] : sim.steps) {
    uint64_t all = 0;
    for (const auto& c : contributions) all += sim.BatchOf(step, c).examples;
    if (all == 0) continue;
    for (const auto& [name, shape] : kVariables) {
      std::vector<float>& w = values[name];
      for (size_t i = 0; i < w.size(); ++i) {
        float mean = 0;
        bool first = true;
        for (const auto& c : contributions) {
          const Batch batch = sim.BatchOf(step, c);
          if (batch.examples == 0) continue;
          const float weight = static_cast<float>(
              static_cast<double>(batch.examples) / static_cast<double>(all));
          const float g = weight * GradientElement(batch, name, i, w[i]);
          mean = first ? g : mean + g;
          first = false;
        }
        float& a = accumulators[name][i];
        a = 0.9f * a + mean;
        w[i] = w[i] - 0.1f * a;
      }
    }
  }
  return values;
}

class ProtocolSimulationTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(ProtocolSimulationTest, PromisesHoldUnderEverySchedule) {
  constexpr uint64_t kSchedules = 500;
  const Scenario scenario = GetParam();
  std::set<std::string> results;
  uint64_t stale = 0;
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation sim(scenario, seed);
    std::vector<std::unique_ptr<Worker>> workers;
    for (uint32_t i = 0; i < scenario.m; ++i) {
      workers.push_back(std::make_unique<Worker>(&sim, i));
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
    ASSERT_EQ(sim.network.unanswered(), 0);
    // wait_ms, and a tick.
    ASSERT_LE(sim.network.longest_wait(), absl::Milliseconds(1100));
    for (const auto& shard : sim.shards) {
      ASSERT_EQ(shard->state().phase(), proto::DONE);
      ASSERT_EQ(shard->version().value(), scenario.steps);
      ASSERT_EQ(shard->staged_bytes(), 0);
    }

    // Every step is N contributions to seats of their own, in order; the last
    // one what tickets are left.
    ASSERT_EQ(sim.steps.size(), scenario.steps);
    std::set<std::tuple<uint32_t, uint64_t>> counted;  // (worker, sequence)
    uint64_t examples = 0;
    for (const auto& [step, contributions] : sim.steps) {
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
        ASSERT_TRUE(counted.emplace(c.worker().index(), c.sequence()).second)
            << "a push counted twice";
        examples += sim.BatchOf(step, c).examples;
      }
    }
    if (scenario.tickets > 0) {
      std::set<uint64_t> spent;
      for (const auto& push : counted) {
        const uint64_t ticket =
            sim.tickets.at({std::get<0>(push), std::get<1>(push)});
        ASSERT_TRUE(spent.insert(ticket).second)
            << "ticket " << ticket << " counted twice";
      }
      ASSERT_EQ(spent.size(), scenario.tickets);
      ASSERT_EQ(*spent.rbegin(), scenario.tickets - 1);
    }
    // A verdict says what happened, to each push.
    const proto::GetStatusResponse status = sim.Status();
    uint64_t told_accepted = 0, told_stale = 0;
    for (uint32_t i = 0; i < scenario.m; ++i) {
      for (const auto& [sequence, verdict] : workers[i]->told()) {
        const bool counts = counted.count({i, sequence}) > 0;
        ASSERT_EQ(verdict, counts ? proto::ACCEPTED : proto::STALE)
            << "worker " << i << " push " << sequence;
        ++(counts ? told_accepted : told_stale);
      }
    }
    ASSERT_EQ(told_accepted, counted.size());
    ASSERT_EQ(status.pushes().accepted(), told_accepted);
    ASSERT_EQ(status.pushes().stale(), told_stale);
    ASSERT_EQ(status.pushes().duplicate(), 0u);
    ASSERT_EQ(status.examples(), examples);
    stale += told_stale;

    // The values are those of the steps, to the bit, on every shard.
    const Values values = sim.ReadAll();
    const Values expected = Oracle(sim);
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
  if (scenario.n < scenario.m) {
    EXPECT_GT(stale, 0u) << "no backup replica ever came late";
  } else {
    EXPECT_EQ(stale, 0u);
  }
  if (scenario.n >= scenario.m && scenario.tickets == 0) {
    EXPECT_EQ(results.size(), 1u) << "the schedule shows in the result";
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, ProtocolSimulationTest,
                         ::testing::ValuesIn(std::vector<Scenario>{
                             {1, 1, 1, 4, {0, 0}},
                             // Every third step has weight 0 alone.
                             {1, 1, 2, 5, {50, 100}, true},
                             {2, 2, 1, 4, {0, 100}},
                             {2, 2, 2, 4, {0, 100}},
                             {2, 2, 2, 4, {50, 100}},
                             {2, 2, 3, 4, {50, 100}, true},
                             {4, 2, 2, 3, {50, 100}},
                             {6, 3, 2, 3, {30, 200}, true},
                             {1, 2, 2, 5, {50, 100}},
                             {2, 3, 3, 5, {50, 100}},
                             {2, 3, 2, 5, {30, 200}, true},
                             // By ticket. The last step is of N, or of fewer.
                             {2, 2, 2, 4, {50, 100}, false, 8},
                             {3, 3, 2, 3, {50, 100}, true, 7},
                             {4, 2, 2, 3, {50, 100}, false, 12},
                             {4, 2, 3, 3, {50, 100}, true, 9},
                             {6, 3, 2, 2, {30, 200}, false, 11},
                             {1, 2, 2, 5, {50, 100}, false, 5},
                             {2, 3, 2, 4, {50, 100}, true, 7},
                             {2, 4, 3, 4, {30, 200}, false, 8},
                         }),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace holdfast
