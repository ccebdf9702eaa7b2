// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/delayed_runtime.h"

#include "common/base/status_macros.h"

namespace holdfast {

absl::Status DelayedRuntime::MayDelay(StreamId stream) {
  // Most pauses are as long as a few operations; a few are much longer, so that
  // other streams get far ahead.
  const uint64_t chance = random_() % 32;
  const int64_t microseconds = static_cast<int64_t>(random_() % 64);
  if (chance >= 10) return absl::OkStatus();
  return delay_(stream, absl::Microseconds(chance == 0 ? 10 * microseconds
                                                       : microseconds));
}

absl::Status DelayedRuntime::BindThread() {
  HOLDFAST_RETURN_IF_ERROR(runtime_->BindThread());
  if (std::this_thread::get_id() != thread_) return absl::OkStatus();
  return MayDelay(StreamId::kCompute);
}

absl::Status DelayedRuntime::Record(Event event, StreamId stream) {
  recorded_[event] = stream;
  return runtime_->Record(event, stream);
}

absl::Status DelayedRuntime::Wait(StreamId stream, Event event) {
  if (options_.ignored_wait == std::make_pair(stream, recorded_[event])) {
    return absl::OkStatus();
  }
  return runtime_->Wait(stream, event);
}

absl::Status DelayedRuntime::CopyIn(const float* host, int64_t size,
                                    float* device) {
  HOLDFAST_RETURN_IF_ERROR(MayDelay(StreamId::kCopyIn));
  return runtime_->CopyIn(host, size, device);
}

absl::Status DelayedRuntime::CopyOut(const float* device, int64_t size,
                                     float* host) {
  HOLDFAST_RETURN_IF_ERROR(MayDelay(StreamId::kCopyOut));
  return runtime_->CopyOut(device, size, host);
}

absl::Status DelayedRuntime::CopyFromPeer(int peer_device, const float* theirs,
                                          int64_t size, float* device) {
  HOLDFAST_RETURN_IF_ERROR(MayDelay(StreamId::kCopyIn));
  return runtime_->CopyFromPeer(peer_device, theirs, size, device);
}

absl::Status DelayedRuntime::CopyFromPeerOverHost(const float* theirs,
                                                  int64_t size, float* staging,
                                                  float* device) {
  HOLDFAST_RETURN_IF_ERROR(MayDelay(StreamId::kCopyIn));
  return runtime_->CopyFromPeerOverHost(theirs, size, staging, device);
}

}  // namespace holdfast
