#include "tests/simulation/asynchronous_job.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace holdfast {

proto::Declaration MakeDeclaration(const AsynchronousJob& s) {
  proto::Declaration declaration;
  const auto add_optimizer = [&](float rate) {
    proto::Optimizer& optimizer = *declaration.add_optimizers();
    optimizer.set_learning_rate(rate);
    optimizer.mutable_sgd();
    return &optimizer;
  };
  add_optimizer(1);
  proto::LearningRateSchedule::Piecewise& pieces =
      *add_optimizer(1)->mutable_schedule()->mutable_piecewise();
  for (uint64_t i = 1; i < s.tickets; ++i) {
    proto::LearningRateSchedule::Piecewise::Piece& piece = *pieces.add_pieces();
    piece.set_from_step(i);
    piece.set_learning_rate(std::ldexp(1.0f, -static_cast<int>(i)));
  }
  add_optimizer(kMomentumRate)->mutable_momentum()->set_momentum(kMomentumKept);

  const auto add = [&](const std::string& name, const std::vector<int64_t>& row,
                       uint32_t optimizer) {
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name(name);
    variable.add_shape(s.num_ps);
    for (int64_t d : row) variable.add_shape(d);
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_zeros();
    variable.set_optimizer(optimizer);
  };
  add(kCount, {3}, 0);
  add(kTickets, {static_cast<int64_t>(s.tickets), 2}, 0);
  add(kRates, {}, 1);
  if (s.momentum) add(kMomentum, {}, 2);
  declaration.mutable_partitioner()->mutable_fixed_shards()->set_shards(
      s.num_ps);
  declaration.set_placement(proto::ROUND_ROBIN);

  auto& mode = *declaration.mutable_consistency()->mutable_asynchronous();
  mode.set_pipeline_depth(s.depth);
  if (s.bound.has_value()) mode.set_staleness_bound(*s.bound);
  declaration.set_total_steps(s.tickets);
  *declaration.mutable_checkpoints() = s.checkpoints;
  return declaration;
}

int64_t PushBytes(const AsynchronousJob& s) {
  return sizeof(float) * (3 + 2 * s.tickets + 1 + (s.momentum ? 1 : 0));
}

void ExpectMadeOf(const AsynchronousJob& job, const std::vector<Given>& counted,
                  const Values& values) {
  std::vector<float> which(2 * job.tickets, 0.0f);
  float count = 0, rates = 0, momentum = 0, accumulator = 0;
  for (const Given& by : counted) {
    ASSERT_TRUE(by.clip_factor.has_value());
    const float c = *by.clip_factor;
    count += c;
    which[2 * by.ticket] = c;
    which[2 * by.ticket + 1] = c * std::ldexp(1.0f, 2 * by.attempt);
    rates += c * std::ldexp(1.0f, -static_cast<int>(by.ticket));
    if (c > 0) {
      accumulator = kMomentumKept * accumulator + 1;
      momentum += kMomentumRate * accumulator;
    }
  }
  for (uint32_t row = 0; row < job.num_ps; ++row) {
    SCOPED_TRACE(absl::StrCat("row ", row));
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(values.at(kCount)[3 * row + i], count);
    }
    for (size_t i = 0; i < which.size(); ++i) {
      ASSERT_EQ(values.at(kTickets)[row * which.size() + i], which[i])
          << "ticket " << i / 2;
    }
    ASSERT_EQ(values.at(kRates)[row], rates);
    if (job.momentum) {
      ASSERT_EQ(values.at(kMomentum)[row], momentum);
    }
  }
}

// ---- The cluster ----

void AsynchronousCluster::OnTicket(uint64_t generation, const PushId& push,
                                   uint64_t ticket) {
  const auto [it, fresh] = given[generation].emplace(push, Given());
  if (!fresh) {
    EXPECT_EQ(it->second.ticket, ticket)
        << push.ToString() << " has another ticket";
    return;
  }
  EXPECT_LT(ticket, job.tickets);
  it->second.ticket = ticket;
  it->second.attempt = attempts_[ticket]++;
  OnTaken(generation, push);
}

void AsynchronousCluster::Apply(uint32_t ps, const proto::ApplyRequest& request,
                                Reply<proto::ApplyResponse> reply) {
  AtShard(ps, &Shard::Apply, request, std::move(reply));
}

// ---- A worker ----

void AsynchronousWorker::OnGeneration() {
  sequence_ = 0;
  asking_ = false;
  waiting_.clear();
  working_.clear();
  applying_.clear();
  spent_.clear();
  booked_.clear();
  acked_through_ = 0;
}

// ---- [A1] Tickets ----

// One more than it works on, and one request at a time.
void AsynchronousWorker::AskForTicket() {
  if (asking_ || waiting_.size() + working_.size() > cluster_->job.depth) {
    return;
  }
  asking_ = true;
  ++sequence_;
  SendAsk();
}

void AsynchronousWorker::SendAsk() {
  proto::TakeTicketRequest request;
  request.set_sequence(sequence_);
  request.set_wait_ms(1000 * cluster_->scheduler.Random(4));
  Tell(request);
}

void AsynchronousWorker::Tell(proto::TakeTicketRequest request) {
  *request.mutable_sender() = sender();
  for (const auto& [sequence, spent] : spent_) *request.add_spent() = spent;
  request.set_acked_through(acked_through_);
  AskTicket(request, [this, request](const auto& response) {
    ASSERT_TRUE(response.ok()) << response.status();
    OnTold(request, *response);
  });
}

void AsynchronousWorker::OnTold(const proto::TakeTicketRequest& request,
                                const proto::TakeTicketResponse& response) {
  if (response.verdict() == proto::FENCED) return OnFenced();
  if (response.verdict() == proto::ABORTED) return Stall();
  ASSERT_EQ(response.verdict(), proto::VERDICT_UNSPECIFIED);
  for (const proto::SpentTicket& spent : request.spent()) {
    spent_.erase(spent.sequence());
    booked_.insert(spent.sequence());
  }
  while (booked_.count(acked_through_ + 1) > 0) ++acked_through_;
  if (response.durable_through() > 0) {
    uint64_t& told = cluster_->told_through[sender().generation()][life()];
    told = std::max(told, response.durable_through());
  }
  if (response.state().phase() == proto::DONE) return Leave();
  if (request.sequence() == 0) return;
  ASSERT_EQ(request.sequence(), sequence_);
  if (!response.has_ticket()) {
    if (request.wait_ms() > 0) return SendAsk();
    After(absl::Milliseconds(200), [this] { SendAsk(); });
    return;
  }
  asking_ = false;
  Push push;
  push.sequence = request.sequence();
  push.ticket = response.ticket();
  waiting_.push_back(std::move(push));
  WorkOn();
}

// ---- [A2] The push ----

void AsynchronousWorker::WorkOn() {
  while (!waiting_.empty() && working_.size() < cluster_->job.depth) {
    Push push = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    const uint64_t sequence = push.sequence;
    working_.emplace(sequence, std::move(push));
    for (uint32_t ps = 0; ps < num_ps(); ++ps) {
      AskShard<proto::PullRequest, PullReply>(
          ps, &Shard::Pull, PullOf(ps, 0),
          [this, ps, sequence](const auto& reply) {
            ASSERT_TRUE(reply.ok()) << reply.status();
            if (reply->state.phase() == proto::FAILED) return Stall();
            Push& push = working_.at(sequence);
            push.versions[ps] = reply->version.value();
            if (push.versions.size() < num_ps()) return;
            // One worker is slow.
            const uint64_t longest = index() == 0 ? 1500 : 300;
            After(absl::Milliseconds(cluster_->scheduler.Random(longest)),
                  [=] { Compute(sequence); });
          });
    }
  }
  AskForTicket();
}

void AsynchronousWorker::Compute(uint64_t sequence) {
  Push& push = working_.at(sequence);
  const bool halves = !cluster_->job.momentum;
  const uint64_t choice = cluster_->scheduler.Random(10);
  // Not finite: some find out before they push, some while they do.
  const bool nothing = choice < 3;
  push.clip_factor = nothing ? 0 : choice == 3 && halves ? 0.5f : 1;
  Given& given = GivenOf(sequence);
  given.clip_factor = push.clip_factor;
  given.not_finite = choice == 1 || choice == 2;
  given.examples = nothing ? 0 : 100 * (given.ticket + 1) + given.attempt;
  if (choice != 0) SendParts(&push, given);
  if (choice <= 1) Apply(sequence);
}

void AsynchronousWorker::SendParts(Push* push, const Given& given) {
  const AsynchronousJob& s = cluster_->job;
  Values gradient;
  gradient[kCount].assign(3 * s.num_ps, -1);
  for (uint32_t row = 0; row < s.num_ps; ++row) {
    for (uint64_t i = 0; i < s.tickets; ++i) {
      const bool here = i == given.ticket;
      gradient[kTickets].push_back(here ? -1 : 0);
      gradient[kTickets].push_back(here ? -std::ldexp(1, 2 * given.attempt)
                                        : 0);
    }
  }
  gradient[kRates].assign(s.num_ps, -1);
  if (s.momentum) gradient[kMomentum].assign(s.num_ps, -1);
  for (uint32_t ps = 0; ps < num_ps(); ++ps) {
    for (const PushPart& part :
         CutIntoParts(ps, gradient, PushSequence(push->sequence),
                      GlobalStep(push->versions.at(ps)),
                      PushSequence(AcknowledgedTo(ps, push->sequence)))) {
      ++push->parts_out;
      SendPart(ps, part);
    }
  }
}

void AsynchronousWorker::SendPart(uint32_t ps, const PushPart& part) {
  AskPush(ps, part, [=](const auto& response) {
    const auto push = working_.find(part.sequence.value());
    // Applied without waiting for its parts.
    const bool needed = push != working_.end() && push->second.parts_out > 0 &&
                        !applying_.count(part.sequence.value());
    if (absl::IsResourceExhausted(response.status())) {
      ++cluster_->refused_for_room;
      if (!needed) return;
      After(absl::Milliseconds(500), [=] { SendPart(ps, part); });
      return;
    }
    ASSERT_TRUE(response.ok()) << response.status();
    if (response->verdict() == proto::FENCED) return OnFenced();
    if (response->verdict() == proto::ABORTED) return Stall();
    if (push != working_.end() && response->receipt() != 0) {
      push->second.held[ps] = response->receipt();
    }
    if (!needed) return;
    ASSERT_EQ(response->verdict(), proto::VERDICT_UNSPECIFIED)
        << "decided before it was applied";
    if (--push->second.parts_out == 0) Apply(part.sequence.value());
  });
}

// ---- [A3] Apply ----

void AsynchronousWorker::Apply(uint64_t sequence) {
  if (!applying_.insert(sequence).second) return;
  if (cluster_->job.faulty && cluster_->scheduler.Random(3) == 0) {
    const auto ps = static_cast<uint32_t>(cluster_->scheduler.Random(num_ps()));
    return ApplyWrongly(ps, sequence);
  }
  for (uint32_t ps = 0; ps < num_ps(); ++ps) SendApply(ps, sequence);
}

void AsynchronousWorker::ApplyWrongly(uint32_t ps, uint64_t sequence) {
  proto::ApplyRequest request = ApplyOf(ps, sequence);
  if (num_ps() > 1 && request.clip_factor() > 0 &&
      cluster_->scheduler.Random(2) == 0) {
    request.set_receipts(static_cast<int>((ps + 1) % num_ps()), 1);
  } else {
    request.mutable_scalars(0)->set_learning_rate(1e9);
  }
  Ask<proto::ApplyRequest, proto::ApplyResponse>(
      [cluster = cluster_, ps](auto r, auto done) {
        cluster->Apply(ps, r, std::move(done));
      },
      request,
      [=](const auto& response) {
        if (response.ok() && response->verdict() == proto::FENCED) {
          return OnFenced();
        }
        if (response.ok() && response->verdict() == proto::ABORTED) {
          return Stall();
        }
        ASSERT_TRUE(absl::IsFailedPrecondition(response.status()))
            << response.status();
        ++cluster_->refused_applies;
        for (uint32_t to = 0; to < num_ps(); ++to) SendApply(to, sequence);
      });
}

proto::ApplyRequest AsynchronousWorker::ApplyOf(uint32_t ps,
                                                uint64_t sequence) const {
  const Push& push = working_.at(sequence);
  proto::ApplyRequest request;
  *request.mutable_sender() = sender();
  request.set_sequence(sequence);
  *request.mutable_scalars() = push.ticket.scalars();
  request.set_ticket_receipt(push.ticket.receipt());
  for (uint32_t holder = 0; holder < num_ps(); ++holder) {
    const auto held = push.held.find(holder);
    request.add_receipts(held == push.held.end() ? 0 : held->second);
  }
  request.set_clip_factor(push.clip_factor);
  request.set_examples(GivenOf(sequence).examples);
  request.set_not_finite(GivenOf(sequence).not_finite);
  request.set_acked_through(AcknowledgedTo(ps, sequence));
  request.set_wait_ms(1000 * cluster_->scheduler.Random(4));
  return request;
}

uint64_t AsynchronousWorker::AcknowledgedTo(uint32_t ps,
                                            uint64_t sequence) const {
  return cluster_->job.faulty && ps == 0 ? sequence - 1 : acked_through_;
}

void AsynchronousWorker::SendApply(uint32_t ps, uint64_t sequence) {
  const proto::ApplyRequest request = ApplyOf(ps, sequence);
  Ask<proto::ApplyRequest, proto::ApplyResponse>(
      [cluster = cluster_, ps](auto r, auto done) {
        cluster->Apply(ps, r, std::move(done));
      },
      request,
      [=](const auto& response) {
        ASSERT_TRUE(response.ok()) << response.status();
        switch (response->verdict()) {
          case proto::VERDICT_UNSPECIFIED:
            EXPECT_NE(response->waiting_for(), IdOf(sequence).ToString())
                << "waits for itself";
            After(absl::Milliseconds(50), [=] { SendApply(ps, sequence); });
            return;
          case proto::FENCED:
            return OnFenced();
          case proto::ABORTED:
            return Stall();
          default:
            ASSERT_EQ(response->verdict(), proto::ACCEPTED);
        }
        OnApplied(ps, sequence, *response);
      });
}

void AsynchronousWorker::OnApplied(uint32_t ps, uint64_t sequence,
                                   const proto::ApplyResponse& response) {
  const uint64_t staleness = response.staleness();
  GivenOf(sequence).accepted_by.insert(ps);
  cluster_->max_staleness = std::max(cluster_->max_staleness, staleness);
  Push& push = working_.at(sequence);
  push.staleness = std::max(push.staleness, staleness);
  push.applied.insert(ps);
  push.applied_at[ps] = response.receipt();
  if (push.applied.size() < num_ps()) return;

  // [A4]
  proto::SpentTicket& spent = spent_[sequence];
  spent.set_sequence(sequence);
  spent.set_examples(GivenOf(sequence).examples);
  spent.set_loss(1);
  spent.set_staleness(push.staleness);
  for (const auto& [at, receipt] : push.applied_at) spent.add_receipts(receipt);
  spent.set_not_finite(GivenOf(sequence).not_finite);
  working_.erase(sequence);
  if (asking_) Tell({});
  WorkOn();
}

}  // namespace holdfast
