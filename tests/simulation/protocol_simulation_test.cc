// The synchronous protocol under a seeded scheduler: the real coordinator and
// shards, workers that follow docs/life_of_a_step.md, and a network that
// delays, reorders, repeats and loses. After each schedule the promises are
// checked: a push counts once on every shard or nowhere, as its verdict says,
// and every shard commits the same steps, to the same bits.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/shard/shard.h"

namespace holdfast {
namespace {

struct Scenario {
  uint32_t n = 1;
  uint32_t m = 1;
  uint32_t num_ps = 1;
  uint64_t steps = 4;
  // Per message, of 1000.
  int lost = 0;
  int repeated = 0;
  // Some contributions have weight 0.
  bool empty_handed = false;
};

std::string Name(const Scenario& s) {
  return absl::StrCat("N", s.n, "M", s.m, "P", s.num_ps,
                      s.lost > 0 ? "Lossy" : "", s.repeated > 0 ? "Twice" : "",
                      s.empty_handed ? "Weight0" : "");
}

// Events in the order of their time; of the clock too.
class Scheduler : public Clock {
 public:
  explicit Scheduler(uint64_t seed) : random_(seed) {}

  absl::Time Now() const override { return now_; }
  uint64_t Random(uint64_t below) { return random_() % below; }

  void After(absl::Duration delay, std::function<void()> event) {
    events_.push({now_ + delay, order_++, std::move(event)});
  }
  // After a delay that is mostly short and sometimes long enough to be
  // overtaken by a whole step.
  void Soon(std::function<void()> event) {
    const uint64_t scale = Random(10) == 0 ? 3'000'000 : 3'000;
    After(absl::Microseconds(1 + Random(scale)), std::move(event));
  }
  bool RunOne() {
    if (events_.empty()) return false;
    Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.run();
    return true;
  }

 private:
  struct Event {
    absl::Time at;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };
  std::mt19937_64 random_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t order_ = 0;
  std::priority_queue<Event> events_;
};

// Carries calls. A request may be lost before it arrives, or its answer after;
// either way the caller hears UNAVAILABLE. A repeated request arrives again
// later, and its second answer goes nowhere.
class Network {
 public:
  Network(Scheduler* scheduler, const Scenario& scenario)
      : scheduler_(scheduler), scenario_(scenario) {}

  template <typename Response, typename Request>
  void Call(std::function<void(Request, Reply<Response>)> handler,
            const Request& request, Reply<Response> reply) {
    auto caller = std::make_shared<Reply<Response>>(std::move(reply));
    auto answer = [this, caller](absl::StatusOr<Response> response) {
      auto kept =
          std::make_shared<absl::StatusOr<Response>>(std::move(response));
      scheduler_->Soon([caller, kept] {
        if (*caller == nullptr) return;
        Reply<Response> once = std::move(*caller);
        *caller = nullptr;
        once(std::move(*kept));
      });
    };
    const auto lose = [&] {
      return scheduler_->Random(1000) < static_cast<uint64_t>(scenario_.lost);
    };
    if (lose()) {
      scheduler_->After(absl::Seconds(2), [answer]() mutable {
        answer(absl::UnavailableError("the request was lost"));
      });
      return;
    }
    if (lose()) {
      scheduler_->Soon([handler, request] {
        handler(request, [](absl::StatusOr<Response>) {});
      });
      scheduler_->After(absl::Seconds(2), [answer]() mutable {
        answer(absl::UnavailableError("the answer was lost"));
      });
      return;
    }
    scheduler_->Soon([handler, request, answer] { handler(request, answer); });
    if (scheduler_->Random(1000) < static_cast<uint64_t>(scenario_.repeated)) {
      scheduler_->Soon([handler, request] {
        handler(request, [](absl::StatusOr<Response>) {});
      });
    }
  }

 private:
  Scheduler* const scheduler_;
  const Scenario scenario_;
};

using Values = std::map<std::string, std::vector<float>>;

const std::vector<std::pair<std::string, std::vector<int64_t>>> kVariables = {
    {"dense/kernel", {2, 3}}, {"dense/bias", {3}}, {"scale", {}}};

size_t Elements(const std::vector<int64_t>& shape) {
  size_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

// What a worker computes at (step, seat): fractions, so that another order of
// summation, another weight, or one more or less of them gives other bits.
float GradientElement(uint64_t step, uint32_t seat, const std::string& variable,
                      size_t i, float value) {
  const float share =
      1.0f / static_cast<float>(3 + 5 * seat + 7 * step + 11 * i);
  return value * 0.3f + share + static_cast<float>(variable.size()) * 0.01f;
}

// Examples behind the gradient: unlike for each seat; 0 means weight 0.
uint64_t ExamplesOf(const Scenario& scenario, uint64_t step, uint32_t seat) {
  if (scenario.empty_handed && (step + 2 * seat) % 3 == 0) return 0;
  return 10 + 3 * seat;
}

proto::Declaration MakeDeclaration(const Scenario& scenario) {
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
  return declaration;
}

// The whole cluster of one schedule.
class Simulation : public ShardLinks {
 public:
  Simulation(const Scenario& scenario, uint64_t seed)
      : scenario(scenario), scheduler(seed), network(&scheduler, scenario) {
    Coordinator::Options options;
    options.num_ps = scenario.num_ps;
    options.num_workers = scenario.m;
    options.lease = absl::Seconds(1000);  // leases have tests of their own
    options.resend_after = absl::Seconds(3);
    coordinator = std::make_unique<Coordinator>(options, &scheduler, this);
    for (uint32_t ps = 0; ps < scenario.num_ps; ++ps) {
      Shard::Options shard;
      shard.index = ps;
      shards.push_back(std::make_unique<Shard>(shard, &scheduler));
    }
  }

  // ShardLinks:
  void SetAddress(uint32_t, const std::string&) override {}
  void Create(uint32_t ps, const proto::CreateRequest& request,
              Reply<proto::CreateResponse> reply) override {
    network.Call<proto::CreateResponse, proto::CreateRequest>(
        [this, ps](auto r, auto done) {
          shards[ps]->Create(r, std::move(done));
        },
        request, std::move(reply));
  }
  void Commit(uint32_t ps, const proto::CommitRequest& request,
              Reply<proto::CommitResponse> reply) override {
    std::vector<proto::StepContribution> s(request.contributions().begin(),
                                           request.contributions().end());
    const auto [it, fresh] =
        commits.emplace(request.step(), request.SerializeAsString());
    if (!fresh && it->second != request.SerializeAsString()) {
      ADD_FAILURE() << "two commits of step " << request.step();
    }
    steps[request.step()] = std::move(s);
    network.Call<proto::CommitResponse, proto::CommitRequest>(
        [this, ps](auto r, auto done) {
          shards[ps]->Commit(r, std::move(done));
        },
        request, std::move(reply));
  }
  void End(uint32_t ps, const proto::EndRequest& request,
           Reply<proto::EndResponse> reply) override {
    network.Call<proto::EndResponse, proto::EndRequest>(
        [this, ps](auto r, auto done) { shards[ps]->End(r, std::move(done)); },
        request, std::move(reply));
  }

  void TickAll() {
    coordinator->Tick();
    for (auto& shard : shards) shard->Tick();
    scheduler.After(absl::Milliseconds(100), [this] { TickAll(); });
  }

  const Scenario scenario;
  Scheduler scheduler;
  Network network;
  std::unique_ptr<Coordinator> coordinator;
  std::vector<std::unique_ptr<Shard>> shards;
  // What the coordinator committed.
  std::map<uint64_t, std::string> commits;
  std::map<uint64_t, std::vector<proto::StepContribution>> steps;
};

// A worker that follows docs/life_of_a_step.md. A call that fails is sent again
// until it succeeds; a repeat may come back from any step before.
class Worker {
 public:
  Worker(Simulation* sim, uint32_t index) : sim_(sim), index_(index) {
    sender_.mutable_task()->set_job(kWorkerJob);
    sender_.mutable_task()->set_index(index);
    sender_.set_generation(1);
  }

  void Start() {
    proto::RegisterRequest request;
    *request.mutable_sender() = sender_;
    request.set_nonce(index_ + 1);
    request.set_protocol_version(1);
    request.set_num_ps(sim_->scenario.num_ps);
    request.set_num_workers(sim_->scenario.m);
    ToCoordinator<proto::RegisterResponse>(
        &Coordinator::Register, request,
        [this](const proto::RegisterResponse& response) {
          sender_.set_incarnation(response.incarnation());
          Declare();
        });
  }

  bool gone() const { return gone_; }
  // By sequence: what was pushed for which step and seat, and its verdict.
  struct Told {
    uint64_t step;
    uint32_t seat;
    proto::Verdict verdict;
  };
  const std::map<uint64_t, Told>& told() const { return told_; }

 private:
  template <typename Response, typename Request>
  void ToCoordinator(void (Coordinator::*method)(const Request&,
                                                 Reply<Response>),
                     const Request& request,
                     std::function<void(const Response&)> next) {
    sim_->network.Call<Response, Request>(
        [this, method](auto r, auto done) {
          (sim_->coordinator.get()->*method)(r, std::move(done));
        },
        request,
        [=, this_ = this](absl::StatusOr<Response> response) {
          if (response.ok()) return next(*response);
          ASSERT_TRUE(absl::IsUnavailable(response.status()))
              << response.status();
          this_->ToCoordinator(method, request, next);
        });
  }

  void Declare() {
    // Every worker declares the same: the first one counts.
    proto::DeclareRequest request;
    *request.mutable_sender() = sender_;
    *request.mutable_declaration() = MakeDeclaration(sim_->scenario);
    ToCoordinator<proto::DeclareResponse>(
        &Coordinator::Declare, request,
        [this](const proto::DeclareResponse&) { AwaitPlacement(); });
  }

  void AwaitPlacement() {
    proto::GetPlacementRequest request;
    *request.mutable_sender() = sender_;
    request.set_wait_ms(1000);
    ToCoordinator<proto::GetPlacementResponse>(
        &Coordinator::GetPlacement, request,
        [this](const proto::GetPlacementResponse& response) {
          if (!response.ready()) return AwaitPlacement();
          for (const proto::Slice& slice : response.slices()) {
            by_ps_[slice.ps()].push_back(slice);
          }
          PullAll(0);
        });
  }

  // [R7]: all shards at one version, at or above `version`.
  void PullAll(uint64_t version) {
    pulled_.clear();
    for (uint32_t ps = 0; ps < sim_->scenario.num_ps; ++ps) {
      PullFrom(ps, version);
    }
  }

  void PullFrom(uint32_t ps, uint64_t version) {
    proto::PullRequest request;
    *request.mutable_sender() = sender_;
    request.set_min_version(version);
    request.set_wait_ms(1000);
    for (const proto::Slice& slice : by_ps_[ps]) {
      proto::ReadRange& range = *request.add_ranges();
      range.set_variable(slice.variable());
      range.set_begin(slice.begin());
      range.set_size(slice.size());
    }
    sim_->network.Call<PullReply, proto::PullRequest>(
        [this, ps](auto r, auto done) {
          sim_->shards[ps]->Pull(r, std::move(done));
        },
        request,
        [this, ps, version](absl::StatusOr<PullReply> reply) {
          if (!reply.ok() || reply->version.value() < version) {
            if (!reply.ok()) {
              ASSERT_TRUE(absl::IsUnavailable(reply.status()))
                  << reply.status();
            }
            return PullFrom(ps, version);
          }
          pulled_[ps] = reply->version.value();
          for (const TensorPiece& piece : reply->tensors) {
            std::vector<float>& values = values_[piece.variable];
            values.resize(piece.data.size() / sizeof(float));
            piece.data.CopyTo(values.data());
          }
          if (pulled_.size() < sim_->scenario.num_ps) return;
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
    seat_ = index_;
    open_offers_ = 0;
    pushed_all_ = false;
    PushSeat();
  }

  // Pushes and offers one own seat after the other, without waiting for
  // verdicts [S1].
  void PushSeat() {
    const uint32_t seats = std::max(sim_->scenario.n, sim_->scenario.m);
    if (seat_ >= seats) {
      pushed_all_ = true;
      return NextWhenTold();
    }
    const uint64_t sequence = ++sequence_;
    const uint64_t examples = ExamplesOf(sim_->scenario, step_, seat_);
    if (examples == 0) return OfferSeat(sequence, examples);
    outstanding_ = 0;
    for (uint32_t ps = 0; ps < sim_->scenario.num_ps; ++ps) {
      for (PushPart& part : MakeParts(ps, sequence)) {
        ++outstanding_;
        SendPart(ps, part, examples);
      }
    }
  }

  // One part for each variable, cut in two where it has more than one element;
  // bytes cut inside an element.
  std::vector<PushPart> MakeParts(uint32_t ps, uint64_t sequence) {
    std::vector<PushPart> parts;
    const auto add = [&](std::vector<TensorPiece> tensors) {
      PushPart part;
      part.sender = sender_;
      part.sequence = PushSequence(sequence);
      part.step = GlobalStep(step_);
      part.part = parts.size();
      part.acked_through = PushSequence(acked_through_);
      part.tensors = std::move(tensors);
      parts.push_back(std::move(part));
    };
    for (const auto& [name, shape] : kVariables) {
      const auto here = std::find_if(
          by_ps_[ps].begin(), by_ps_[ps].end(),
          [&, n = name](const auto& slice) { return slice.variable() == n; });
      if (here == by_ps_[ps].end()) continue;
      const size_t size = Elements(shape);
      std::vector<float> gradient(size);
      for (size_t i = 0; i < size; ++i) {
        gradient[i] = GradientElement(step_, seat_, name, i, values_[name][i]);
      }
      const size_t cut = size / 2;
      for (auto [begin, end] :
           {std::pair<size_t, size_t>{0, cut}, {cut, size}}) {
        if (begin == end) continue;
        std::string bytes(reinterpret_cast<const char*>(&gradient[begin]),
                          (end - begin) * sizeof(float));
        TensorPiece piece;
        piece.variable = name;
        piece.shape = shape;
        piece.begin = begin;
        piece.data = Buffer::FromString(bytes.substr(0, 3));
        piece.data.Append(Buffer::FromString(bytes.substr(3)));
        add({std::move(piece)});
      }
    }
    if (parts.empty()) add({});
    for (PushPart& part : parts) part.num_parts = parts.size();
    return parts;
  }

  void SendPart(uint32_t ps, const PushPart& part, uint64_t examples) {
    sim_->network.Call<proto::PushResponse, PushPart>(
        [this, ps](auto r, auto done) {
          sim_->shards[ps]->Push(std::move(r), std::move(done));
        },
        part,
        [=, this_ = this](absl::StatusOr<proto::PushResponse> response) {
          if (!response.ok()) {
            ASSERT_TRUE(absl::IsUnavailable(response.status()))
                << response.status();
            return this_->SendPart(ps, part, examples);
          }
          // A push that came too late is offered all the same: the
          // coordinator's verdict is the one that counts.
          if (--this_->outstanding_ == 0) {
            this_->OfferSeat(part.sequence.value(), examples);
          }
        });
  }

  void OfferSeat(uint64_t sequence, uint64_t examples) {
    proto::ContributeRequest request;
    *request.mutable_sender() = sender_;
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
    PushSeat();
  }

  void SendOffer(const proto::ContributeRequest& request) {
    ToCoordinator<proto::ContributeResponse>(
        &Coordinator::Contribute, request,
        [=, this_ = this](const proto::ContributeResponse& response) {
          if (response.verdict() == proto::VERDICT_UNSPECIFIED) {
            return this_->SendOffer(request);
          }
          this_->told_[request.sequence()] = {request.step(), request.seat(),
                                              response.verdict()};
          while (this_->told_.count(this_->acked_through_ + 1) > 0) {
            ++this_->acked_through_;
          }
          --this_->open_offers_;
          this_->NextWhenTold();
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
    *request.mutable_sender() = sender_;
    ToCoordinator<proto::LeaveResponse>(
        &Coordinator::Leave, request,
        [this](const proto::LeaveResponse&) { gone_ = true; });
  }

  Simulation* const sim_;
  const uint32_t index_;
  proto::Sender sender_;
  std::map<uint32_t, std::vector<proto::Slice>> by_ps_;
  Values values_;
  std::map<uint32_t, uint64_t> pulled_;
  uint64_t step_ = 0;
  uint32_t seat_ = 0;
  uint64_t sequence_ = 0;
  uint64_t acked_through_ = 0;
  int outstanding_ = 0;
  int open_offers_ = 0;
  bool pushed_all_ = false;
  bool gone_ = false;
  std::map<uint64_t, Told> told_;
};

// What the variables must be after `steps`, computed apart from the store: one
// loop over all elements, the mean in the order of S, TensorFlow's momentum.
Values Oracle(
    const Scenario& scenario,
    const std::map<uint64_t, std::vector<proto::StepContribution>>& steps) {
  Values values, accumulators;
  for (const auto& [name, shape] : kVariables) {
    values[name].assign(Elements(shape), 0.5f);
    accumulators[name].assign(Elements(shape), 0.0f);
  }
  for (const auto& [step, contributions] : steps) {
    uint64_t all = 0;
    for (const auto& c : contributions)
      all += ExamplesOf(scenario, step, c.seat());
    if (all == 0) continue;
    const Values before = values;
    for (auto& [name, w] : values) {
      for (size_t i = 0; i < w.size(); ++i) {
        float mean = 0;
        bool first = true;
        for (const auto& c : contributions) {
          const uint64_t examples = ExamplesOf(scenario, step, c.seat());
          if (examples == 0) continue;
          const float weight = static_cast<float>(
              static_cast<double>(examples) / static_cast<double>(all));
          const float g = weight * GradientElement(step, c.seat(), name, i,
                                                   before.at(name)[i]);
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

Values ReadAll(Simulation& sim) {
  Values values;
  for (uint32_t ps = 0; ps < sim.scenario.num_ps; ++ps) {
    for (const auto& [name, shape] : kVariables) {
      proto::PullRequest request;
      request.mutable_sender()->mutable_task()->set_job("client");
      request.mutable_sender()->set_generation(1);
      proto::ReadRange& range = *request.add_ranges();
      range.set_variable(name);
      range.set_size(Elements(shape));
      sim.shards[ps]->Pull(request, [&, n = name](absl::StatusOr<PullReply> r) {
        if (!r.ok()) return;  // on another ps
        EXPECT_EQ(r->version.value(), sim.scenario.steps);
        values[n].resize(r->tensors[0].data.size() / sizeof(float));
        r->tensors[0].data.CopyTo(values[n].data());
      });
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
    // The other ps join; this is no part of what is tested here.
    for (uint32_t ps = 1; ps < scenario.num_ps; ++ps) {
      proto::RegisterRequest request;
      request.mutable_sender()->mutable_task()->set_job(kPsJob);
      request.mutable_sender()->mutable_task()->set_index(ps);
      request.set_nonce(1000 + ps);
      request.set_protocol_version(1);
      request.set_num_ps(scenario.num_ps);
      request.set_num_workers(scenario.m);
      sim.coordinator->Register(request, [](const auto& response) {
        ASSERT_TRUE(response.ok()) << response.status();
      });
    }
    std::vector<std::unique_ptr<Worker>> workers;
    for (uint32_t i = 0; i < scenario.m; ++i) {
      workers.push_back(std::make_unique<Worker>(&sim, i));
      sim.scheduler.Soon([worker = workers.back().get()] { worker->Start(); });
    }
    sim.TickAll();

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
    for (const auto& shard : sim.shards) {
      ASSERT_EQ(shard->state().phase(), proto::DONE);
      ASSERT_EQ(shard->version().value(), scenario.steps);
      ASSERT_EQ(shard->staged_bytes(), 0);
    }

    // Every step is N contributions to seats of their own, in order.
    ASSERT_EQ(sim.steps.size(), scenario.steps);
    std::set<std::tuple<uint32_t, uint64_t>> counted;  // (worker, sequence)
    for (const auto& [step, contributions] : sim.steps) {
      ASSERT_EQ(contributions.size(), scenario.n);
      for (size_t i = 0; i < contributions.size(); ++i) {
        const auto& c = contributions[i];
        ASSERT_EQ(c.seat() % scenario.m, c.worker().index());
        if (i > 0) {
          ASSERT_LT(contributions[i - 1].seat(), c.seat());
        }
        ASSERT_TRUE(counted.emplace(c.worker().index(), c.sequence()).second)
            << "a push counted twice";
      }
    }
    // A verdict says what happened, to each push.
    proto::PushCounts pushes;
    sim.coordinator->GetStatus({},
                               [&](auto status) { pushes = status->pushes(); });
    uint64_t told_accepted = 0, told_stale = 0;
    for (uint32_t i = 0; i < scenario.m; ++i) {
      for (const auto& [sequence, told] : workers[i]->told()) {
        const bool counts = counted.count({i, sequence}) > 0;
        ASSERT_EQ(told.verdict, counts ? proto::ACCEPTED : proto::STALE)
            << "worker " << i << " push " << sequence;
        ++(counts ? told_accepted : told_stale);
      }
    }
    ASSERT_EQ(told_accepted, counted.size());
    ASSERT_EQ(pushes.accepted(), told_accepted);
    ASSERT_EQ(pushes.stale(), told_stale);
    ASSERT_EQ(pushes.duplicate(), 0u);
    stale += told_stale;

    // The values are those of the steps, to the bit, on every shard.
    const Values values = ReadAll(sim);
    const Values expected = Oracle(scenario, sim.steps);
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
  if (scenario.n >= scenario.m) {
    EXPECT_EQ(results.size(), 1u) << "the schedule shows in the result";
    EXPECT_EQ(stale, 0u);
  } else {
    EXPECT_GT(stale, 0u) << "no backup replica ever came late";
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, ProtocolSimulationTest,
                         ::testing::ValuesIn(std::vector<Scenario>{
                             {1, 1, 1, 4, 0, 0},
                             // Every third step has weight 0 alone.
                             {1, 1, 2, 5, 50, 100, true},
                             {2, 2, 1, 4, 0, 100},
                             {2, 2, 2, 4, 0, 100},
                             {2, 2, 2, 4, 50, 100},
                             {2, 2, 3, 4, 50, 100, true},
                             {4, 2, 2, 3, 50, 100},
                             {6, 3, 2, 3, 30, 200, true},
                             {1, 2, 2, 5, 50, 100},
                             {2, 3, 3, 5, 50, 100},
                             {2, 3, 2, 5, 30, 200, true},
                         }),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace holdfast
