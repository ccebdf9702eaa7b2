// SPDX-License-Identifier: Apache-2.0
#include "worker/model/gradient_downloads.h"

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"

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
  HOLDFAST_ASSIGN_OR_RETURN(const auto download,
                            backend_->StartDownload(gradient));
  sending_.push_back({variable, download});
  return absl::OkStatus();
}

absl::Status GradientDownloads::Deliver(GradientSink sink) {
  for (; delivered_ < sending_.size(); ++delivered_) {
    const Sending& next = sending_[delivered_];
    HOLDFAST_ASSIGN_OR_RETURN(const auto arrived,
                              backend_->HasArrived(next.download));
    if (!arrived) break;
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
      HOLDFAST_RETURN_IF_ERROR(backend_->Await(next.download));
    }
    sink(next.variable, next.download.values);
  }
  return absl::OkStatus();
}

}  // namespace holdfast
