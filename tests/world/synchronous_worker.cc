// SPDX-License-Identifier: Apache-2.0
#include "tests/world/synchronous_worker.h"

#include <algorithm>

namespace holdfast::sim {

void SynchronousWorker::OnGeneration() {
  finished_ = false;
  sequence_ = 0;
  ticket_.reset();
  told_.clear();
  acked_through_ = 0;
}

// [R7]: all shards at one version, at or above `version`.
void SynchronousWorker::PullAll(uint64_t version) {
  pulled_.clear();
  for (uint32_t ps = 0; ps < num_ps(); ++ps) PullFrom(ps, version);
}

void SynchronousWorker::PullFrom(uint32_t ps, uint64_t version) {
  proto::PullRequest request = PullOf(ps);
  request.set_min_version(version);
  Get<proto::PullRequest>(ShardNode(ps), request,
                          [this, ps, request](const PullReply& reply) {
                            if (reply.state.phase() == proto::FAILED)
                              return Stall();
                            const uint64_t version = request.min_version();
                            if (reply.version.value() < version)
                              return PullFrom(ps, version);
                            OnPulled(ps, request, reply);
                          });
}

void SynchronousWorker::OnPulled(uint32_t ps, const proto::PullRequest& request,
                                 const PullReply& reply) {
  pulled_[ps] = reply.version.value();
  loss_scale_ = reply.loss_scale;
  Keep(request, reply);
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
}

void SynchronousWorker::ComputeStep(uint64_t step) {
  // A job that evaluations end early is over when the coordinator says so.
  finished_ = step >= job().steps();
  if (finished_) return LeaveIfDone();
  step_ = step;
  seat_ = index_;
  open_offers_ = 0;
  pushed_all_ = false;
  NextSeat();
}

// Pushes and offers one of its seats after the other, without waiting for
// verdicts [S1].
void SynchronousWorker::NextSeat() {
  if (seat_ >= std::max(job().n(), job().m())) return EndSeats();
  if (!job().by_ticket()) {
    ++sequence_;
    return PushSeat(BatchOfSeat(job(), step_, seat_));
  }
  if (ticket_.has_value()) {  // taken for a step that had closed
    const uint64_t ticket = *ticket_;
    ticket_.reset();
    return PushSeat(BatchOfTicket(job(), ticket));
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
  *request.mutable_sender() = me();
  request.set_sequence(sequence_);
  request.set_acked_through(acked_through_);
  request.set_wait_ms(park_ms());
  Get<proto::TakeTicketRequest>(
      kCoordinator, request, [this](const proto::TakeTicketResponse& response) {
        if (IsOver(response.verdict())) return;
        if (!response.has_ticket()) {
          if (response.state().phase() == proto::DONE) return EndSeats();
          if (response.state().phase() == proto::STOPPED) return Stall();
          return TakeTicket();
        }
        const uint64_t ticket = response.ticket().index();
        // Sometimes a worker continues with the values that it has, and comes
        // late.
        if (response.global_step() > step_ && world_->Random(4) < 3) {
          ticket_ = ticket;
          return PullAll(response.global_step());
        }
        PushSeat(BatchOfTicket(job(), ticket));
      });
}

void SynchronousWorker::PushSeat(const Batch& batch) {
  const uint64_t sequence = sequence_;
  world_->Check(world_->oracle().OnComputed(me().generation(), IdOf(sequence),
                                            step_, values(), loss_scale_));
  if (batch.examples == 0) return OfferSeat(sequence, batch);
  receipts_.assign(num_ps(), 0);
  if (world_->Misbehaves(index_, Misdeed::kOffersUnheld)) {
    const auto some =
        job().faulty ? static_cast<uint32_t>(world_->Random(num_ps())) : 1;
    return SendParts(sequence, batch, 0, some,
                     [=] { OfferUnheld(sequence, batch, some); });
  }
  SendParts(sequence, batch, 0, num_ps(), [=] { OfferSeat(sequence, batch); });
}

void SynchronousWorker::SendParts(uint64_t sequence, const Batch& batch,
                                  uint32_t from_ps, uint32_t to_ps,
                                  std::function<void()> next) {
  if (from_ps == to_ps) return next();
  const Values gradient = GradientOf(job(), batch, values(), loss_scale_);
  outstanding_ = 0;
  for (uint32_t ps = from_ps; ps < to_ps; ++ps) {
    for (const PushPart& part :
         CutIntoParts(ps, gradient, sequence, step_, acked_through_)) {
      ++outstanding_;
      SendPart(ps, part, next);
    }
  }
}

void SynchronousWorker::SendPart(uint32_t ps, const PushPart& part,
                                 std::function<void()> next) {
  Ask<PushPart>(ShardNode(ps), part,
                [=](const absl::StatusOr<proto::PushResponse>& response) {
                  // Pushes of earlier lives, which have yet to be fenced, take
                  // the room.
                  if (absl::IsResourceExhausted(response.status())) {
                    return After(absl::Milliseconds(500),
                                 [=] { SendPart(ps, part, next); });
                  }
                  if (!response.ok()) {
                    return world_->Violate(response.status().ToString());
                  }
                  if (IsOver(response->verdict())) return;
                  if (response->receipt() != 0)
                    receipts_[ps] = response->receipt();
                  // A push that came too late is offered all the same: the
                  // coordinator's verdict is the one that counts.
                  if (--outstanding_ == 0) next();
                });
}

proto::ContributeRequest SynchronousWorker::OfferOf(uint64_t sequence,
                                                    const Batch& batch) const {
  proto::ContributeRequest request;
  *request.mutable_sender() = me();
  request.set_step(step_);
  request.set_seat(seat_);
  request.set_sequence(sequence);
  request.set_examples(batch.examples);
  request.set_not_finite(batch.not_finite());
  request.set_loss(1.0);
  request.set_acked_through(acked_through_);
  request.set_wait_ms(park_ms());
  if (batch.examples > 0) {
    request.mutable_receipts()->Add(receipts_.begin(), receipts_.end());
  }
  return request;
}

void SynchronousWorker::OfferUnheld(uint64_t sequence, const Batch& batch,
                                    uint32_t held_by) {
  Ask<proto::ContributeRequest>(
      kCoordinator, OfferOf(sequence, batch),
      [=](const absl::StatusOr<proto::ContributeResponse>& response) {
        if (response.ok() && IsOver(response->verdict())) return;
        world_->OnMisdeed();
        if (absl::IsFailedPrecondition(response.status())) {
          return SendParts(sequence, batch, held_by, num_ps(),
                           [=] { OfferSeat(sequence, batch); });
        }
        // The step has closed.
        if (!response.ok() || response->verdict() != proto::STALE) {
          return world_->Violate(
              "an offer of a push that not all shards hold was accepted");
        }
        ++open_offers_;
        OnVerdict(sequence, response->verdict());
        seat_ += job().m();
        NextSeat();
      });
}

void SynchronousWorker::OfferSeat(uint64_t sequence, const Batch& batch) {
  ++open_offers_;
  SendOffer(OfferOf(sequence, batch));
  seat_ += job().m();
  NextSeat();
}

void SynchronousWorker::SendOffer(const proto::ContributeRequest& request) {
  Get<proto::ContributeRequest>(
      kCoordinator, request, [=](const proto::ContributeResponse& response) {
        if (response.verdict() == proto::VERDICT_UNSPECIFIED) {
          if (response.state().phase() == proto::STOPPED) return Stall();
          return SendOffer(request);
        }
        if (IsOver(response.verdict())) return;
        OnVerdict(request.sequence(), response.verdict());
      });
}

void SynchronousWorker::OnVerdict(uint64_t sequence, proto::Verdict verdict) {
  world_->Check(
      world_->oracle().OnVerdict(me().generation(), IdOf(sequence), verdict));
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

}  // namespace holdfast::sim
