#include "tests/simulation/synchronous_job.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

const std::vector<std::pair<std::string, std::vector<int64_t>>> kVariables = {
    {"dense/kernel", {2, 3}}, {"dense/bias", {3}}, {"scale", {}}};

size_t Elements(const std::vector<int64_t>& shape) {
  size_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

Batch BatchOfSeat(const SynchronousJob& job, uint64_t step, uint32_t seat) {
  const bool empty = job.empty_handed && (step + 2 * seat) % 3 == 0;
  return {5 * seat + 7 * step, empty ? 0 : 10 + 3 * seat};
}

Batch BatchOfTicket(const SynchronousJob& job, uint64_t index) {
  const bool empty = job.empty_handed && index % 3 == 0;
  return {7 * index, empty ? 0 : 10 + 3 * (index % 4)};
}

// What a worker computes on a batch: fractions, so that another order of
// summation, another weight, or one more or less of them gives other bits.
float GradientElement(const Batch& batch, const std::string& variable, size_t i,
                      float value, float loss_scale) {
  const float share =
      1.0f / (static_cast<float>(3 + batch.number + 11 * i) + loss_scale);
  return value * 0.3f + share + static_cast<float>(variable.size()) * 0.01f;
}

SimulatedCluster::Options ClusterOptions(const SynchronousJob& job,
                                         uint64_t seed) {
  SimulatedCluster::Options options;
  options.seed = seed;
  options.faults = job.faults;
  options.num_ps = job.num_ps;
  options.num_workers = job.m;
  return options;
}

}  // namespace

std::string Name(const SynchronousJob& job) {
  return absl::StrCat(
      "N", job.n, "M", job.m, "P", job.num_ps,
      job.faults.lost > 0 ? "Lossy" : "",
      job.faults.repeated > 0 ? "Twice" : "", job.empty_handed ? "Weight0" : "",
      job.tickets > 0 ? absl::StrCat("T", job.tickets) : "",
      job.aggregation == proto::Consistency::SUM ? "Sum" : "",
      job.min_replicas > 0 ? absl::StrCat("Min", job.min_replicas) : "",
      job.faulty ? "Faulty" : "");
}

PushId PushOf(const proto::StepContribution& contribution) {
  const proto::TaskId& worker = contribution.worker();
  return {
      {{worker.job(), worker.index()}, Incarnation(contribution.incarnation())},
      PushSequence(contribution.sequence())};
}

// ---- The cluster ----

SynchronousCluster::SynchronousCluster(const SynchronousJob& job,
                                       const Options& options)
    : SimulatedCluster(options), job(job) {}

SynchronousCluster::SynchronousCluster(const SynchronousJob& job, uint64_t seed)
    : SynchronousCluster(job, ClusterOptions(job, seed)) {}

void SynchronousCluster::OnSent(const ShardRequest& sent) {
  const auto* commit = std::get_if<proto::CommitRequest>(&sent);
  if (commit == nullptr) return;
  proto::CommitRequest request = *commit;
  // All but to whom it is said.
  request.mutable_sender()->clear_receiver_nonce();
  const uint64_t generation = request.sender().generation();
  const auto [it, fresh] = commits_.emplace(
      std::make_pair(generation, request.step()), request.SerializeAsString());
  if (!fresh && it->second != request.SerializeAsString()) {
    ADD_FAILURE() << "two commits of step " << request.step();
  }
  if (fresh) {
    steps[generation][request.step()].assign(request.contributions().begin(),
                                             request.contributions().end());
    OnStep(request);
  }
}

void SynchronousCluster::OnTicket(uint64_t generation, const PushId& push,
                                  uint64_t ticket) {
  EXPECT_EQ(tickets[generation].emplace(push, ticket).first->second, ticket)
      << push.ToString() << " has another ticket";
}

void SynchronousCluster::OnVerdict(uint64_t generation, const PushId& push,
                                   proto::Verdict verdict) {
  EXPECT_EQ(told[generation].emplace(push, verdict).first->second, verdict)
      << push.ToString() << " has another verdict";
}

Batch SynchronousCluster::BatchOf(uint64_t generation, uint64_t step,
                                  const proto::StepContribution& c) const {
  if (job.tickets == 0) return BatchOfSeat(job, step, c.seat());
  const PushId push = PushOf(c);
  const auto handed_out = tickets.find(generation);
  if (handed_out == tickets.end() || handed_out->second.count(push) == 0) {
    ADD_FAILURE() << "a push without a ticket counts";
    return {0, 0};
  }
  return BatchOfTicket(job, handed_out->second.at(push));
}

TrainingState SynchronousCluster::First() {
  TrainingState state;
  for (const auto& [name, shape] : kVariables) {
    state.values[name].assign(Elements(shape), 0.5f);
    state.accumulators[name].assign(Elements(shape), 0.0f);
  }
  state.values["frozen"].assign(Elements(kVariables[0].second), 0.5f);
  return state;
}

void SynchronousCluster::MakeStep(uint64_t generation, uint64_t step,
                                  TrainingState* state) const {
  const std::vector<proto::StepContribution>& contributions =
      steps.at(generation).at(step);
  uint64_t all = 0;
  uint64_t unit = 0;
  bool finite = true;
  for (const auto& c : contributions) {
    const Batch batch = BatchOf(generation, step, c);
    all += batch.examples;
    unit = std::gcd(unit, batch.examples);
    finite = finite && !batch.not_finite();
  }
  const float loss_scale = state->loss_scale;
  if (!finite) {
    state->loss_scale = std::max(loss_scale / 2, 1.0f);
    state->steps_at_loss_scale = 0;
  } else if (++state->steps_at_loss_scale == 2) {
    state->loss_scale = loss_scale * 2;
    state->steps_at_loss_scale = 0;
  }
  if (all == 0) return;
  const bool adds = job.aggregation == proto::Consistency::SUM;
  for (const auto& [name, shape] : kVariables) {
    std::vector<float>& w = state->values[name];
    for (size_t i = 0; i < w.size(); ++i) {
      float mean = 0;
      bool first = true;
      for (const auto& c : contributions) {
        const Batch batch = BatchOf(generation, step, c);
        if (batch.examples == 0) continue;
        const float weight =
            adds ? 1 : static_cast<float>(batch.examples / unit);
        const float g =
            weight * GradientElement(batch, name, i, w[i], loss_scale);
        mean = first ? g : mean + g;
        first = false;
      }
      if (!adds) mean /= static_cast<float>(all / unit);
      float& a = state->accumulators[name][i];
      a = 0.9f * a + mean;
      w[i] = w[i] - 0.1f * a;
    }
  }
}

// ---- A worker ----

proto::Declaration SynchronousWorker::MakeDeclaration() const {
  const SynchronousJob& job = cluster_->job;
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
  declaration.mutable_partitioner()->mutable_fixed_shards()->set_shards(2);
  auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(job.n);
  mode.set_total_num_replicas(job.m);
  mode.set_aggregation(job.aggregation);
  declaration.set_total_steps(job.steps);
  declaration.mutable_loss_scale()->set_initial(8);
  declaration.mutable_loss_scale()->set_growth_interval(2);
  if (job.tickets > 0) {
    declaration.set_examples(proto::BY_TICKET);
    declaration.set_total_tickets(job.tickets);
  }
  if (job.min_replicas > 0) {
    proto::LostWorkers& lost = *declaration.mutable_lost_workers();
    lost.set_policy(proto::LostWorkers::CONTINUE);
    lost.set_min_replicas(job.min_replicas);
    lost.set_max_workers(job.m);
  }
  *declaration.mutable_checkpoints() = job.checkpoints;
  return declaration;
}

void SynchronousWorker::OnDone() {
  if (done_) return;
  done_ = true;
  if (finished_) return Leave();
  cluster_->scheduler.After(absl::Seconds(30),
                            [this] { Hear([this] { Leave(); }); });
}

void SynchronousWorker::OnGeneration() {
  finished_ = false;
  sequence_ = 0;
  ticket_.reset();
  told_.clear();
  acked_through_ = 0;
}

bool SynchronousWorker::IsOver(proto::Verdict verdict) {
  if (verdict == proto::FENCED || verdict == proto::ABORTED) {
    Stall();  // its session is told more
    return true;
  }
  return false;
}

// [R7]: all shards at one version, at or above `version`.
void SynchronousWorker::PullAll(uint64_t version) {
  pulled_.clear();
  for (uint32_t ps = 0; ps < num_ps(); ++ps) PullFrom(ps, version);
}

void SynchronousWorker::PullFrom(uint32_t ps, uint64_t version) {
  AskShard<proto::PullRequest, PullReply>(
      ps, &Shard::Pull, PullOf(ps, version),
      [this, ps, version](const absl::StatusOr<PullReply>& reply) {
        ASSERT_TRUE(reply.ok()) << reply.status();
        if (reply->state.phase() == proto::FAILED) return Stall();
        if (reply->version.value() < version) return PullFrom(ps, version);
        cluster_->OnPulled(ps, *reply);
        OnPulled(ps, *reply);
      });
}

void SynchronousWorker::OnPulled(uint32_t ps, const PullReply& reply) {
  pulled_[ps] = reply.version.value();
  loss_scales_[ps] = reply.loss_scale;
  Keep(reply);
  if (pulled_.size() < num_ps()) return;
  uint64_t highest = 0;
  for (const auto& [p, v] : pulled_) highest = std::max(highest, v);
  std::vector<uint32_t> laggards;
  for (const auto& [p, v] : pulled_) {
    if (v < highest) laggards.push_back(p);
  }
  if (laggards.empty()) {
    for (const auto& [p, scale] : loss_scales_) {
      EXPECT_EQ(scale, loss_scales_.at(0)) << "of version " << highest;
    }
    return ComputeStep(highest);
  }
  for (uint32_t laggard : laggards) pulled_.erase(laggard);
  for (uint32_t laggard : laggards) PullFrom(laggard, highest);
}

void SynchronousWorker::ComputeStep(uint64_t step) {
  finished_ = step >= cluster_->job.steps;
  if (finished_) {
    if (done_) Leave();
    return;
  }
  step_ = step;
  seat_ = index();
  open_offers_ = 0;
  pushed_all_ = false;
  NextSeat();
}

// Pushes and offers one own seat after the other, without waiting for
// verdicts [S1].
void SynchronousWorker::NextSeat() {
  const SynchronousJob& job = cluster_->job;
  if (seat_ >= std::max(job.n, job.m)) return EndSeats();
  if (job.tickets == 0) {
    ++sequence_;
    return PushSeat(BatchOfSeat(job, step_, seat_));
  }
  if (ticket_.has_value()) {  // taken for a step that had closed
    const uint64_t ticket = *ticket_;
    ticket_.reset();
    return PushSeat(BatchOfTicket(job, ticket));
  }
  ++sequence_;
  TakeTicket();
}

void SynchronousWorker::EndSeats() {
  pushed_all_ = true;
  NextWhenTold();
}

void SynchronousWorker::TakeTicket() {
  proto::TakeTicketRequest request;
  *request.mutable_sender() = sender();
  request.set_sequence(sequence_);
  request.set_acked_through(acked_through_);
  request.set_wait_ms(1000);
  AskTicket(request, [this](const auto& response) {
    ASSERT_TRUE(response.ok()) << response.status();
    if (IsOver(response->verdict())) return;
    if (!response->has_ticket()) {
      if (response->state().phase() == proto::DONE) return EndSeats();
      return TakeTicket();
    }
    const uint64_t ticket = response->ticket().index();
    // Some go on with what they have, and come late.
    if (response->global_step() > step_ && cluster_->scheduler.Random(4) > 0) {
      ticket_ = ticket;
      return PullAll(response->global_step());
    }
    PushSeat(BatchOfTicket(cluster_->job, ticket));
  });
}

void SynchronousWorker::PushSeat(const Batch& batch) {
  const uint64_t sequence = sequence_;
  if (batch.examples == 0) return OfferSeat(sequence, batch);
  receipts_.assign(num_ps(), 0);
  if (cluster_->job.faulty && cluster_->scheduler.Random(3) == 0) {
    const auto some =
        static_cast<uint32_t>(cluster_->scheduler.Random(num_ps()));
    return SendParts(sequence, batch, 0, some,
                     [=] { OfferUnheld(sequence, batch, some); });
  }
  SendParts(sequence, batch, 0, num_ps(), [=] { OfferSeat(sequence, batch); });
}

void SynchronousWorker::SendParts(uint64_t sequence, const Batch& batch,
                                  uint32_t from_ps, uint32_t to_ps,
                                  std::function<void()> next) {
  if (from_ps == to_ps) return next();
  Values gradient;
  for (const auto& [name, shape] : kVariables) {
    std::vector<float>& g = gradient[name];
    for (size_t i = 0; i < Elements(shape); ++i) {
      g.push_back(GradientElement(batch, name, i, values().at(name)[i],
                                  loss_scales_.at(0)));
    }
  }
  outstanding_ = 0;
  for (uint32_t ps = from_ps; ps < to_ps; ++ps) {
    for (const PushPart& part :
         CutIntoParts(ps, gradient, PushSequence(sequence), GlobalStep(step_),
                      PushSequence(acked_through_))) {
      ++outstanding_;
      AskPush(ps, part, [=](const auto& response) {
        ASSERT_TRUE(response.ok()) << response.status();
        if (IsOver(response->verdict())) return;
        if (response->receipt() != 0) receipts_[ps] = response->receipt();
        // A push that came too late is offered all the same: the
        // coordinator's verdict is the one that counts.
        if (--outstanding_ == 0) next();
      });
    }
  }
}

proto::ContributeRequest SynchronousWorker::OfferOf(uint64_t sequence,
                                                    const Batch& batch) const {
  proto::ContributeRequest request;
  *request.mutable_sender() = sender();
  request.set_step(step_);
  request.set_seat(seat_);
  request.set_sequence(sequence);
  request.set_examples(batch.examples);
  request.set_not_finite(batch.not_finite());
  request.set_loss(1.0);
  request.set_acked_through(acked_through_);
  request.set_wait_ms(1000);
  if (batch.examples > 0) {
    request.mutable_receipts()->Add(receipts_.begin(), receipts_.end());
  }
  return request;
}

void SynchronousWorker::OfferUnheld(uint64_t sequence, const Batch& batch,
                                    uint32_t held_by) {
  AskCoordinator<proto::ContributeRequest, proto::ContributeResponse>(
      &Coordinator::Contribute, OfferOf(sequence, batch),
      [=](const auto& response) {
        if (!response.ok()) {
          ASSERT_TRUE(absl::IsFailedPrecondition(response.status()))
              << response.status();
          ++cluster_->refused_offers;
          return SendParts(sequence, batch, held_by, num_ps(),
                           [=] { OfferSeat(sequence, batch); });
        }
        if (IsOver(response->verdict())) return;
        // Its step has closed.
        ASSERT_EQ(response->verdict(), proto::STALE);
        ++open_offers_;
        OnVerdict(sequence, response->verdict());
        seat_ += cluster_->job.m;
        NextSeat();
      });
}

void SynchronousWorker::OfferSeat(uint64_t sequence, const Batch& batch) {
  ++open_offers_;
  SendOffer(OfferOf(sequence, batch));
  seat_ += cluster_->job.m;
  NextSeat();
}

void SynchronousWorker::SendOffer(const proto::ContributeRequest& request) {
  AskCoordinator<proto::ContributeRequest, proto::ContributeResponse>(
      &Coordinator::Contribute, request, [=](const auto& response) {
        ASSERT_TRUE(response.ok()) << response.status();
        if (response->verdict() == proto::VERDICT_UNSPECIFIED) {
          return SendOffer(request);
        }
        if (IsOver(response->verdict())) return;
        OnVerdict(request.sequence(), response->verdict());
      });
}

void SynchronousWorker::OnVerdict(uint64_t sequence, proto::Verdict verdict) {
  cluster_->OnVerdict(sender().generation(),
                      {LifeOf(sender()), PushSequence(sequence)}, verdict);
  told_.insert(sequence);
  while (told_.count(acked_through_ + 1) > 0) ++acked_through_;
  --open_offers_;
  NextWhenTold();
}

void SynchronousWorker::NextWhenTold() {
  if (pushed_all_ && open_offers_ == 0) {
    pushed_all_ = false;
    PullAll(step_ + 1);
  }
}

}  // namespace holdfast
