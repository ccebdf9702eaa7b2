// SPDX-License-Identifier: Apache-2.0
#include "client/push_exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/neighbors.h"
#include "client/tensors.h"

namespace holdfast::client {
namespace {

uint64_t BytesOf(const std::vector<Plan::Part>& parts) {
  uint64_t elements = 0;
  for (const Plan::Part& part : parts) {
    for (const ElementRange& range : part) elements += range.size;
  }
  return elements * sizeof(float);
}

}  // namespace

bool PushExchange::Fits(const Placement& placement) {
  if (placement.push.parts.size() != 1) return false;
  const size_t push_parts = placement.push.parts[0].size();
  return (push_parts == 1 ||
          (push_parts == 0 && !placement.layout.tables().empty())) &&
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

bool PushExchange::FitsRows(const Contribution& contribution,
                            Parameters* next) const {
  if (gradients_.rows() == nullptr) return true;
  const Placement& placement = push_.generation->placement;
  // Whether `rows` are at most one part, which fits in the message together
  // with those of `plan`.
  const auto fit = [](const Plan& plan, const auto& rows) {
    return rows.num_parts(0) <= 1 &&
           (rows.BytesOf(0) == 0 || BytesOf(plan.parts[0]) + rows.BytesOf(0) <=
                                        static_cast<uint64_t>(plan.part_bytes));
  };
  if (contribution.examples > 0 && !fit(placement.push, *gradients_.rows())) {
    return false;
  }
  return next == nullptr ||
         fit(placement.pull, RowReads(&placement.layout, &placement.pull,
                                      /*ask_all=*/false, next));
}

void PushExchange::Start(const Contribution& contribution, Parameters* next) {
  contribution_ = contribution;
  next_ = next;
  if (next != nullptr && gradients_.rows() != nullptr) {
    row_reads_.emplace(&push_.layout(), &push_.generation->placement.pull,
                       /*ask_all=*/false, next);
  }
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
    if (HasRowReads()) row_reads_->AddRanges(0, 0, request.mutable_ranges());
  }
  if (contribution_.examples > 0) {
    const size_t parts = gradients_.num_parts(push_.plan(), 0);
    exchange.tensors = gradients_.PiecesOf(push_.plan(), 0, 0);
    for (uint32_t part = 1; part < parts; ++part) {
      for (TensorPiece& piece : gradients_.PiecesOf(push_.plan(), 0, part)) {
        exchange.tensors.push_back(std::move(piece));
      }
    }
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
  absl::Span<const TensorPiece> dense = response.tensors;
  absl::Span<const TensorPiece> rows;
  if (HasRowReads()) {
    rows = dense.subspan(std::min(plan.parts[0][0].size(), dense.size()));
    dense.remove_suffix(rows.size());
    row_reads_->Prepare();
  }
  absl::Status status = TakeValues(
      push_.layout(), plan, plan.parts[0][0], Reading::kAsDeclared, dense,
      neighbors != nullptr ? neighbors->Keep(0) : nullptr, next_);
  if (status.ok() && HasRowReads()) status = row_reads_->Take(0, 0, rows);
  if (!status.ok()) {
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
