#include "client/push_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/neighbors.h"
#include "client/tensors.h"

namespace holdfast::client {

bool PushExchange::Fits(const Placement& placement) {
  return placement.push.parts.size() == 1 &&
         placement.push.parts[0].size() == 1 &&
         placement.pull.parts[0].size() == 1;
}

PushExchange::PushExchange(const PushFacts* push, const Gradients* gradients,
                           const FollowUp* follow_up, CallGroup* calls,
                           OnAnswer on_answer)
    : push_(*push),
      gradients_(*gradients),
      follow_up_(*follow_up),
      calls_(*calls),
      on_answer_(std::move(on_answer)) {}

void PushExchange::Start(const Contribution& contribution, Parameters* next) {
  contribution_ = contribution;
  next_ = next;
  Ask();
}

void PushExchange::Ask() {
  WithTensors<proto::PushPullRequest> exchange;
  proto::PushPullRequest& request = exchange.message;
  {
    absl::MutexLock lock(&push_.context().mutex);
    request.set_acked_through(
        push_.generation->sequences.acked_through().value());
  }
  request.set_sequence(push_.sequence.value());
  request.set_step(push_.steps.front().value());
  request.set_wait_ms(absl::ToInt64Milliseconds(push_.context().timing.park));
  follow_up_.FillIn(contribution_, &request);
  if (next_ != nullptr) {
    AddRanges(push_.layout(), push_.generation->placement.pull.parts[0][0],
              Reading::kAsDeclared, request.mutable_ranges());
  }
  if (contribution_.examples > 0) {
    exchange.tensors = gradients_.PiecesOf(push_.plan().parts[0][0]);
  }
  calls_.Start(
      rpc::kPushPull, 0, std::move(exchange),
      [this](const absl::StatusOr<WithTensors<proto::PushPullResponse>>&
                 response) {
        OnResponse(response);
        return Next::kDone;
      });
}

void PushExchange::OnResponse(
    const absl::StatusOr<WithTensors<proto::PushPullResponse>>& response) {
  if (absl::IsResourceExhausted(response.status())) {
    {
      absl::MutexLock lock(&push_.context().mutex);
      refusal_ = std::string(response.status().message());
    }
    calls_.After(&backoff_, [this] { Ask(); });
    return;
  }
  if (!response.ok()) return on_answer_(response.status());
  const absl::StatusOr<bool> brought_next = TakeNext(*response);
  if (!brought_next.ok()) return on_answer_(brought_next.status());
  on_answer_(Answer{response->message, *brought_next});
}

absl::StatusOr<bool> PushExchange::TakeNext(
    const WithTensors<proto::PushPullResponse>& response) {
  const proto::PushPullResponse& message = response.message;
  if (next_ == nullptr || response.tensors.empty() ||
      message.verdict() == proto::VERDICT_UNSPECIFIED) {
    return false;
  }
  const Plan& plan = push_.generation->placement.pull;
  Neighbors* const neighbors = push_.context().transport.neighbors();
  Prepare(push_.layout(), plan, next_);
  if (absl::Status status = TakeValues(
          push_.layout(), plan, plan.parts[0][0], Reading::kAsDeclared,
          response.tensors, neighbors != nullptr ? neighbors->Keep(0) : nullptr,
          next_);
      !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(push_.context().ps_names[0],
                                                    ": ", status.message()));
  }
  next_->version = GlobalStep(message.version());
  next_->versions = {next_->version};
  next_->loss_scale = LossScaleOf(message);
  absl::MutexLock lock(&push_.context().mutex);
  push_.generation->sequences.Reached(next_->version);
  return true;
}

}  // namespace holdfast::client
