// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/open_step.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {

void OpenStep::Reset() {
  step_.reset();
  members_.clear();
  members_as_of_.reset();
}

void OpenStep::Open(GlobalStep number) {
  const auto& mode = (*declared_)->consistency().synchronous();
  step_ = Step(number, mode.replicas_to_aggregate(), mode.total_num_replicas());
}

void OpenStep::Remove(const WorkerLife& life) {
  if (step_.has_value()) step_->Vacate(life);
  if (members_.erase(life.worker) > 0) members_as_of_.reset();
}

absl::StatusOr<proto::Verdict> OpenStep::Offer(
    const proto::ContributeRequest& request, const PushId& push,
    uint32_t replica, bool sealed, const TicketBook& tickets,
    const Verdicts& verdicts) {
  const GlobalStep number(request.step());
  if (const std::optional<uint32_t> seat = step_->SeatOf(push, replica)) {
    const SeatOffer& offer = *step_->Find(*seat);
    if (number == step_->number() && *seat == request.seat() &&
        offer.examples == request.examples() &&
        offer.clip_factor == ClipFactorOf(request) &&
        offer.not_finite == request.not_finite()) {
      return proto::VERDICT_UNSPECIFIED;  // asked again
    }
    return absl::InvalidArgumentError(absl::StrCat(
        push.ToString(), " was offered to step ", step_->number().value(),
        ", seat ", *seat, " with ", offer.examples, " examples, clip factor ",
        offer.clip_factor, " before, now to step ", number.value(), ", seat ",
        request.seat(), " with ", request.examples(), ", ",
        ClipFactorOf(request)));
  }
  if (number > step_->number()) {
    return absl::FailedPreconditionError(
        absl::StrCat(push.ToString(), " is of step ", number.value(),
                     ", the open step is ", step_->number().value()));
  }
  HOLDFAST_RETURN_IF_ERROR(verdicts.CheckInWindow(push));
  if (request.seat() >= step_->num_seats() ||
      step_->OwnerOf(request.seat()) != replica) {
    return absl::InvalidArgumentError(absl::StrCat(
        push.ToString(), ": seat ", request.seat(), " of ", step_->num_seats(),
        " is not the worker's: seats i with i mod ",
        (*declared_)->consistency().synchronous().total_num_replicas(), " = ",
        replica, " are"));
  }
  if (tickets.open() && !tickets.Find(push).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(push.ToString(), " has no ticket: take one first"));
  }
  if (number < step_->number()) return proto::STALE;
  if (step_->Find(request.seat()) != nullptr) return proto::DUPLICATE;
  // The step has its N offers, or the job has made all its steps.
  if (step_->full() || sealed) return proto::STALE;
  HOLDFAST_RETURN_IF_ERROR(verdicts.CheckHeld(request, push));
  SeatOffer offer;
  offer.push = push;
  offer.examples = request.examples();
  offer.clip_factor = ClipFactorOf(request);
  if (!request.loss_unknown()) offer.loss = request.loss();
  offer.not_finite = request.not_finite();
  step_->Fill(request.seat(), std::move(offer));
  return proto::VERDICT_UNSPECIFIED;
}

bool OpenStep::IsComplete(const TicketBook& tickets, bool short_handed) const {
  if (step_->full()) return true;
  if (step_->num_offers() == 0) return false;  // [S3]
  if (tickets.open() && tickets.pool().left() == 0 &&
      tickets.pool().num_out() == step_->num_offers()) {
    return true;
  }
  if (!declared_->continues() || !short_handed) return false;
  // Every member must have offered: other workers' offers do not count instead.
  if (step_->num_offers() < members_.size()) return false;
  return std::none_of(members_.begin(), members_.end(),
                      [&](const auto& member) {
                        return step_->Find(member.second) == nullptr;
                      });
}

}  // namespace holdfast
