// SPDX-License-Identifier: Apache-2.0
#include "tests/world/asynchronous_worker.h"

#include <algorithm>

#include "common/job/job_phase.h"

namespace holdfast::sim {

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

uint32_t AsynchronousWorker::depth() const {
  return std::max(
      1u, job().declaration.consistency().asynchronous().pipeline_depth());
}

// [A1] Asks for one more ticket than it works on, with one request at a time.
void AsynchronousWorker::AskForTicket() {
  if (asking_ || waiting_.size() + working_.size() > depth()) return;
  asking_ = true;
  ++sequence_;
  SendAsk();
}

void AsynchronousWorker::SendAsk() {
  proto::TakeTicketRequest request;
  request.set_sequence(sequence_);
  request.set_wait_ms(park_ms() * (3 - world_->Random(4)));
  Tell(request);
}

void AsynchronousWorker::Tell(proto::TakeTicketRequest request) {
  *request.mutable_sender() = me();
  for (const auto& [sequence, spent] : spent_) *request.add_spent() = spent;
  request.set_acked_through(acked_through_);
  Get<proto::TakeTicketRequest>(
      kCoordinator, request,
      [this, request](const proto::TakeTicketResponse& response) {
        OnTold(request, response);
      });
}

void AsynchronousWorker::OnTold(const proto::TakeTicketRequest& request,
                                const proto::TakeTicketResponse& response) {
  if (IsOver(response.verdict())) return;
  for (const proto::SpentTicket& spent : request.spent()) {
    spent_.erase(spent.sequence());
    booked_.insert(spent.sequence());
  }
  while (booked_.count(acked_through_ + 1) > 0) ++acked_through_;
  if (response.durable_through() > 0) {
    world_->oracle().OnDurableThrough(me().generation(), LifeOf(me()),
                                      response.durable_through());
  }
  // The session is told, too.
  if (IsOrderlyEnd(response.state().phase())) return;
  if (request.sequence() == 0) return;
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

// [A2]
void AsynchronousWorker::WorkOn() {
  while (!waiting_.empty() && working_.size() < depth()) {
    Push push = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    const uint64_t sequence = push.sequence;
    working_.emplace(sequence, std::move(push));
    for (uint32_t ps = 0; ps < num_ps(); ++ps) {
      Get<proto::PullRequest>(
          ShardNode(ps), PullOf(ps),
          [this, ps, sequence](const PullReply& reply) {
            if (reply.state.phase() == proto::FAILED) return Stall();
            Push& push = working_.at(sequence);
            push.versions[ps] = reply.version.value();
            if (push.versions.size() < num_ps()) return;
            // One worker is slow.
            const uint64_t wait = world_->Random(index_ == 0 ? 1500 : 300);
            if (wait == 0) return Compute(sequence);
            After(absl::Milliseconds(wait), [=] { Compute(sequence); });
          });
    }
  }
  AskForTicket();
}

void AsynchronousWorker::Compute(uint64_t sequence) {
  Push& push = working_.at(sequence);
  Given& given = GivenOf(sequence);
  const bool halves = !HasVariable(job(), kMomentum);
  // Gradients that are not finite: some are found before they are pushed, some
  // while they are.
  const uint64_t choice = world_->Random(10);
  const bool nothing = choice >= 7;
  push.clip_factor = nothing ? 0 : choice == 6 && halves ? 0.5f : 1;
  given.clip_factor = push.clip_factor;
  given.not_finite = choice >= 8;
  given.examples = nothing ? 0 : 100 * (given.ticket + 1) + given.attempt;
  if (world_->Misbehaves(index_, Misdeed::kClaimsUnapplied)) {
    return Claim(sequence);
  }
  if (choice != 9) {
    PushTo(0, sequence);
    // The other shards get the push later.
    const bool unheld = num_ps() > 1 && !job().faulty &&
                        world_->Misbehaves(index_, Misdeed::kAppliesUnheld);
    for (uint32_t ps = 1; ps < num_ps() && !unheld; ++ps) PushTo(ps, sequence);
  }
  if (choice >= 8) Apply(sequence);
}

void AsynchronousWorker::PushTo(uint32_t ps, uint64_t sequence) {
  Push& push = working_.at(sequence);
  const std::vector<PushPart> parts =
      CutIntoParts(ps, GradientOf(job(), GivenOf(sequence)), sequence,
                   push.versions.at(ps), AcknowledgedTo(ps, sequence));
  push.parts_out += parts.size();
  for (const PushPart& part : parts) SendPart(ps, part);
}

void AsynchronousWorker::SendPart(uint32_t ps, const PushPart& part) {
  const uint64_t sequence = part.sequence.value();
  Ask<PushPart>(
      ShardNode(ps), part,
      [=](const absl::StatusOr<proto::PushResponse>& response) {
        const auto push = working_.find(sequence);
        // The push may have been applied without waiting for its parts.
        const bool needed = push != working_.end() &&
                            push->second.parts_out > 0 &&
                            applying_.count(sequence) == 0;
        if (absl::IsResourceExhausted(response.status())) {
          if (!needed) return;
          return After(absl::Milliseconds(500), [=] { SendPart(ps, part); });
        }
        if (!response.ok()) {
          return world_->Violate(response.status().ToString());
        }
        if (IsOver(response->verdict())) return;
        if (push != working_.end() && response->receipt() != 0) {
          push->second.held[ps] = response->receipt();
        }
        if (!needed) return;
        if (response->verdict() != proto::VERDICT_UNSPECIFIED) {
          return world_->Violate("a push is decided before it is applied");
        }
        if (--push->second.parts_out == 0) OnHeld(sequence);
      });
}

void AsynchronousWorker::OnHeld(uint64_t sequence) {
  if (working_.at(sequence).held.size() < num_ps()) {
    return ApplyWrongly(0, sequence, /*wrong_scalars=*/false, [=] {
      for (uint32_t ps = 1; ps < num_ps(); ++ps) PushTo(ps, sequence);
    });
  }
  Apply(sequence);
}

// [A3]
void AsynchronousWorker::Apply(uint64_t sequence) {
  if (!applying_.insert(sequence).second) return;
  const auto then = [=] {
    SendApply(0, sequence);
    // The receipts of the other shards follow later.
    if (!job().faulty &&
        world_->Misbehaves(index_, Misdeed::kClaimsHalfApplied)) {
      return;
    }
    for (uint32_t ps = 1; ps < num_ps(); ++ps) SendApply(ps, sequence);
  };
  const bool unheld =
      job().faulty && world_->Misbehaves(index_, Misdeed::kAppliesUnheld);
  const bool wrong_scalars =
      !unheld && world_->Misbehaves(index_, Misdeed::kWrongScalars);
  if (!unheld && !wrong_scalars) return then();
  const auto ps =
      job().faulty ? static_cast<uint32_t>(world_->Random(num_ps())) : 0;
  ApplyWrongly(ps, sequence, wrong_scalars, then);
}

void AsynchronousWorker::ApplyWrongly(uint32_t ps, uint64_t sequence,
                                      bool wrong_scalars,
                                      std::function<void()> then) {
  proto::ApplyRequest request = ApplyOf(ps, sequence);
  if (!wrong_scalars && num_ps() > 1 && request.clip_factor() > 0) {
    request.set_receipts(static_cast<int>((ps + 1) % num_ps()), 1);
  } else {
    request.mutable_scalars(0)->set_learning_rate(1e9);
  }
  Ask<proto::ApplyRequest>(
      ShardNode(ps), request,
      [=](const absl::StatusOr<proto::ApplyResponse>& response) {
        if (response.ok() && IsOver(response->verdict())) return;
        world_->OnMisdeed();
        if (absl::IsFailedPrecondition(response.status())) return then();
        world_->Violate("a push was applied wrongly");
      });
}

proto::ApplyRequest AsynchronousWorker::ApplyOf(uint32_t ps,
                                                uint64_t sequence) const {
  const Push& push = working_.at(sequence);
  proto::ApplyRequest request;
  *request.mutable_sender() = me();
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
  request.set_wait_ms(park_ms() * (3 - world_->Random(4)));
  return request;
}

uint64_t AsynchronousWorker::AcknowledgedTo(uint32_t ps,
                                            uint64_t sequence) const {
  return ps == 0 && world_->Misbehaves(index_, Misdeed::kAcknowledgesAll)
             ? sequence - 1
             : acked_through_;
}

void AsynchronousWorker::SendApply(uint32_t ps, uint64_t sequence) {
  Get<proto::ApplyRequest>(
      ShardNode(ps), ApplyOf(ps, sequence),
      [=](const proto::ApplyResponse& response) {
        if (IsOver(response.verdict())) return;
        if (response.verdict() == proto::VERDICT_UNSPECIFIED) {
          if (response.waiting_for() == IdOf(sequence).ToString()) {
            world_->Violate("a push waits for itself");
          }
          return After(absl::Milliseconds(50),
                       [=] { SendApply(ps, sequence); });
        }
        if (response.verdict() != proto::ACCEPTED) {
          return world_->Violate(
              absl::StrCat("the answer to Apply is ",
                           proto::Verdict_Name(response.verdict())));
        }
        OnApplied(ps, sequence, response);
      });
}

void AsynchronousWorker::OnApplied(uint32_t ps, uint64_t sequence,
                                   const proto::ApplyResponse& response) {
  GivenOf(sequence).accepted = true;
  Push& push = working_.at(sequence);
  push.staleness = std::max(push.staleness, response.staleness());
  push.applied.insert(ps);
  push.applied_at[ps] = response.receipt();
  if (push.applied.size() < num_ps()) {
    if (!job().faulty &&
        world_->Misbehaves(index_, Misdeed::kClaimsHalfApplied)) {
      Claim(sequence);
    }
    return;
  }

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

void AsynchronousWorker::Claim(uint64_t sequence) {
  // Sent at once, because the worker may hear that it is fenced before it gets
  // an answer.
  world_->OnMisdeed();
  proto::TakeTicketRequest request;
  *request.mutable_sender() = me();
  request.set_acked_through(acked_through_);
  proto::SpentTicket& spent = *request.add_spent();
  spent.set_sequence(sequence);
  spent.set_examples(1);
  for (const auto& [ps, receipt] : working_.at(sequence).applied_at) {
    spent.add_receipts(receipt);
  }
  Ask<proto::TakeTicketRequest>(
      kCoordinator, request,
      [this](const absl::StatusOr<proto::TakeTicketResponse>& response) {
        if (response.ok() && IsOver(response->verdict())) return;
        if (!absl::IsFailedPrecondition(response.status())) {
          return world_->Violate("a false claim was booked");
        }
        world_->Exit(process_, /*for_good=*/false);
      });
}

}  // namespace holdfast::sim
