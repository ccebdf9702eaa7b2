// SPDX-License-Identifier: Apache-2.0
#include "ps_server/push_pull/push_pull_exchange.h"

#include <utility>

#include "common/job/ids.h"
#include "common/job/job_phase.h"

namespace holdfast {

PushPullExchange::PushPullExchange(proto::PushPullRequest request)
    : request_(std::move(request)) {}

PushPullExchange::Output PushPullExchange::Start(
    std::vector<TensorPiece> tensors) {
  const bool empty = request_.has_contribution()
                         ? request_.contribution().examples() == 0
                         : request_.application().examples() == 0;
  if (empty) return OnPushed(proto::PushResponse());
  Output out;
  PushPart& part = out.push.emplace();
  part.sender = request_.sender();
  part.sequence = PushSequence(request_.sequence());
  part.step = GlobalStep(request_.step());
  part.acked_through = PushSequence(request_.acked_through());
  part.tensors = std::move(tensors);
  return out;
}

PushPullExchange::Output PushPullExchange::OnPushed(
    const absl::StatusOr<proto::PushResponse>& pushed) {
  if (!pushed.ok()) return Answer(pushed.status());
  if (pushed->verdict() == proto::ABORTED) {
    PushPullReply aborted;
    aborted.response.set_generation(pushed->generation());
    aborted.response.set_verdict(proto::ABORTED);
    aborted.response.set_version(pushed->version());
    return Answer(std::move(aborted));
  }
  // Other verdicts come from the Contribute or Apply that follows, as without
  // PushPull.
  Output out;
  if (request_.has_application()) {
    out.apply = Application();
  } else {
    out.contribute = Contribution(pushed->receipt());
    out.pull = Pull(request_.step() + 1);
  }
  return out;
}

proto::ContributeRequest PushPullExchange::Contribution(
    uint64_t receipt) const {
  const auto& contribution = request_.contribution();
  proto::ContributeRequest request;
  *request.mutable_sender() = request_.sender();
  request.set_step(request_.step());
  request.set_seat(contribution.seat());
  request.set_sequence(request_.sequence());
  request.set_examples(contribution.examples());
  if (contribution.has_clip_factor()) {
    request.set_clip_factor(contribution.clip_factor());
  }
  request.set_loss(contribution.loss());
  request.set_loss_unknown(contribution.loss_unknown());
  request.set_not_finite(contribution.not_finite());
  request.set_acked_through(request_.acked_through());
  request.set_wait_ms(request_.wait_ms());
  request.add_receipts(receipt);
  return request;
}

PushPullExchange::Output PushPullExchange::OnContributed(
    const absl::StatusOr<proto::ContributeResponse>& contributed) {
  if (!contributed.ok()) return Answer(contributed.status());
  proto::PushPullResponse& to = reply_.response;
  to.set_generation(contributed->generation());
  // If the job has ended, the answer to the pull already says so.
  if (!to.has_state()) *to.mutable_state() = contributed->state();
  to.set_verdict(contributed->verdict());
  to.set_global_step(contributed->global_step());
  to.set_waiting_for(contributed->waiting_for());
  to.set_durable_step(contributed->durable_step());
  decided_ = true;
  return AnswerWhenComplete();
}

proto::ApplyRequest PushPullExchange::Application() const {
  const auto& application = request_.application();
  proto::ApplyRequest request;
  *request.mutable_sender() = request_.sender();
  request.set_sequence(request_.sequence());
  *request.mutable_scalars() = application.scalars();
  if (application.has_clip_factor()) {
    request.set_clip_factor(application.clip_factor());
  }
  request.set_examples(application.examples());
  request.set_not_finite(application.not_finite());
  request.set_acked_through(request_.acked_through());
  request.set_wait_ms(request_.wait_ms());
  request.set_ticket_receipt(application.ticket_receipt());
  return request;
}

PushPullExchange::Output PushPullExchange::OnApplied(
    const absl::StatusOr<proto::ApplyResponse>& applied) {
  if (!applied.ok()) return Answer(applied.status());
  proto::PushPullResponse& to = reply_.response;
  to.set_generation(applied->generation());
  *to.mutable_state() = applied->state();
  to.set_verdict(applied->verdict());
  to.set_waiting_for(applied->waiting_for());
  to.set_staleness(applied->staleness());
  to.set_receipt(applied->receipt());
  to.set_version(applied->version());
  decided_ = true;
  if (applied->verdict() == proto::ACCEPTED) {
    Output out;
    out.pull = Pull(0);
    if (out.pull.has_value()) return out;
  } else {
    // While the push waits for another one to be applied, it is too early to
    // pull.
    pulled_ = true;
  }
  return AnswerWhenComplete();
}

std::optional<proto::PullRequest> PushPullExchange::Pull(uint64_t min_version) {
  if (request_.ranges().empty()) {
    pulled_ = true;
    return std::nullopt;
  }
  proto::PullRequest request;
  *request.mutable_sender() = request_.sender();
  request.set_min_version(min_version);
  *request.mutable_ranges() = request_.ranges();
  request.set_wait_ms(request_.wait_ms());
  return request;
}

PushPullExchange::Output PushPullExchange::OnPulled(
    absl::StatusOr<PullReply> pulled) {
  pulled_ = true;
  // If the answer has no values, the caller pulls by itself, and gets the error
  // then.
  if (pulled.ok()) {
    reply_.response.set_version(pulled->version.value());
    reply_.response.set_loss_scale(pulled->loss_scale);
    reply_.tensors = std::move(pulled->tensors);
    if (IsEnd(pulled->state.phase())) {
      *reply_.response.mutable_state() = std::move(pulled->state);
    }
  }
  return AnswerWhenComplete();
}

PushPullExchange::Output PushPullExchange::AnswerWhenComplete() {
  if (!decided_ || !pulled_) return {};
  return Answer(std::move(reply_));
}

// Only the first answer counts: a contribution may fail while the values are
// awaited.
PushPullExchange::Output PushPullExchange::Answer(
    absl::StatusOr<PushPullReply> answer) {
  Output out;
  if (!std::exchange(answered_, true)) out.answer = std::move(answer);
  return out;
}

}  // namespace holdfast
