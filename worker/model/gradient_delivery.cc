// SPDX-License-Identifier: Apache-2.0
#include "worker/model/gradient_delivery.h"

#include <cstring>

#include "common/base/status_macros.h"
#include "common/trace/trace.h"

namespace holdfast {
namespace {

// The size of a double in float32 values.
constexpr int64_t kDouble = sizeof(double) / sizeof(float);

}  // namespace

void GradientDelivery::Begin(GradientSink sink, Decide decide) {
  sink_.emplace(sink);
  decide_.emplace(decide);
  if (!asynchronous_) return;
  {
    absl::MutexLock lock(&mutex_);
    sending_.clear();
    ended_ = false;
    dropping_ = false;
    delivered_ = false;
    status_ = absl::OkStatus();
  }
  if (thread_ == nullptr) thread_ = std::make_unique<Strand>("gradients");
  thread_->Post([this] { Deliver(); });
}

absl::Span<float> GradientDelivery::Memory(int variable) const {
  return asynchronous_ ? absl::Span<float>() : sink_->Memory(variable);
}

absl::Status GradientDelivery::Add(int variable, ConstMatrix gradient) {
  // Downloads arrive in the order in which they were begun.
  HOLDFAST_ASSIGN_OR_RETURN(const auto squares,
                            StartSquares(variable, gradient));
  HOLDFAST_ASSIGN_OR_RETURN(const auto download,
                            backend_->StartDownload(gradient));
  if (!asynchronous_) {
    (*sink_)(variable, download.values);
    return absl::OkStatus();
  }
  absl::MutexLock lock(&mutex_);
  sending_.push_back({variable, download, squares});
  return status_;
}

absl::StatusOr<std::optional<Download>> GradientDelivery::StartSquares(
    int variable, ConstMatrix gradient) {
  if (!asynchronous_ || gradient.size() < kMinForFacts) return std::nullopt;
  HOLDFAST_RETURN_IF_ERROR(
      backend_->Reserve(num_variables_ * kDouble, &squares_));
  const Matrix sum = {
      squares_.View(num_variables_, kDouble).data + variable * kDouble, 1,
      kDouble};
  backend_->SumSquares(gradient, sum);
  return backend_->StartDownload(sum);
}

GradientFacts GradientDelivery::FactsOf(const Sending& next) {
  GradientFacts facts;
  if (!next.squares.has_value()) return facts;
  facts.sum_of_squares.emplace();
  std::memcpy(&*facts.sum_of_squares, next.squares->values.data(),
              sizeof(double));
  return facts;
}

absl::Status GradientDelivery::Finish(bool complete) {
  if (!asynchronous_) return absl::OkStatus();
  const ScopedTrace waiting(backend_->tracer(), TraceKind::kWait,
                            "the delivery of gradients");
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  if (!complete) dropping_ = true;
  mutex_.Await(absl::Condition(&delivered_));
  return status_;
}

void GradientDelivery::Deliver() {
  const absl::StatusOr<bool> decided = (*decide_)();
  if (!decided.ok()) Fail(decided.status());
  const bool wanted = decided.ok() && *decided;
  Sending next;
  for (size_t place = 0; AwaitAdded(place, &next); ++place) {
    // Even a gradient that is dropped must have arrived before its memory is
    // written again.
    const absl::Status arrived = AwaitArrival(next);
    if (!arrived.ok()) Fail(arrived);
    bool dropped = !wanted;
    {
      absl::MutexLock lock(&mutex_);
      dropped = dropped || dropping_;
    }
    if (!dropped) {
      (*sink_)(next.variable, next.download.values, FactsOf(next));
    }
  }
  absl::MutexLock lock(&mutex_);
  delivered_ = true;
}

bool GradientDelivery::AwaitAdded(size_t place, Sending* next) {
  absl::MutexLock lock(&mutex_);
  const auto decided = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ended_ || place < sending_.size();
  };
  mutex_.Await(absl::Condition(&decided));
  if (place >= sending_.size()) return false;
  *next = sending_[place];
  return true;
}

absl::Status GradientDelivery::AwaitArrival(const Sending& next) {
  const ScopedTrace waiting(backend_->tracer(), TraceKind::kWait,
                            "a gradient from the device");
  return backend_->Await(next.download);
}

void GradientDelivery::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  status_.Update(status);
  dropping_ = true;
}

}  // namespace holdfast
