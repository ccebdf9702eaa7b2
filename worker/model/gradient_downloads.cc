// SPDX-License-Identifier: Apache-2.0
#include "worker/model/gradient_downloads.h"

#include "absl/status/statusor.h"

namespace holdfast {

void GradientDownloads::Clear() {
  sending_.clear();
  delivered_ = 0;
}

absl::Status GradientDownloads::Start(int variable, ConstMatrix gradient,
                                      GradientSink sink) {
  const absl::Status status = Begin(variable, gradient);
  return status.ok() ? Deliver(sink) : status;
}

absl::Status GradientDownloads::Drop() {
  return Finish([](int, absl::Span<const float>) {});
}

absl::Status GradientDownloads::Begin(int variable, ConstMatrix gradient) {
  const absl::StatusOr<Download> download = backend_->StartDownload(gradient);
  if (!download.ok()) return download.status();
  sending_.push_back({variable, *download});
  return absl::OkStatus();
}

absl::Status GradientDownloads::Deliver(GradientSink sink) {
  for (; delivered_ < sending_.size(); ++delivered_) {
    const Sending& next = sending_[delivered_];
    const absl::StatusOr<bool> arrived = backend_->HasArrived(next.download);
    if (!arrived.ok()) return arrived.status();
    if (!*arrived) break;
    sink(next.variable, next.download.values);
  }
  return absl::OkStatus();
}

absl::Status GradientDownloads::Finish(GradientSink sink) {
  for (; delivered_ < sending_.size(); ++delivered_) {
    const Sending& next = sending_[delivered_];
    {
      const ScopedTrace waiting(backend_->tracer(), TraceKind::kWait,
                                "a gradient from the device");
      const absl::Status status = backend_->Await(next.download);
      if (!status.ok()) return status;
    }
    sink(next.variable, next.download.values);
  }
  return absl::OkStatus();
}

}  // namespace holdfast
