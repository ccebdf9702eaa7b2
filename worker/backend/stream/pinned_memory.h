// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_PINNED_MEMORY_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_PINNED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/process/host_memory.h"
#include "worker/backend/pinned_ranges.h"
#include "worker/backend/stream/device_runtime.h"

namespace holdfast {

// Pinned memory that one device allocates, for copies to every device that
// shares `ranges`. Without it the values are copied all the same, but more
// slowly, so that a failure is only logged, once.
//
// Thread-safe.
class PinnedMemory final : public HostMemory {
 public:
  // `runtime` and `ranges` must outlive the object. `device` is the device's
  // name for messages.
  PinnedMemory(DeviceRuntime* runtime, PinnedRanges* ranges, std::string device)
      : runtime_(*runtime), ranges_(*ranges), device_(std::move(device)) {}

  HostBuffer Allocate(int64_t size) override;
  bool Register(const void* data, size_t bytes) override;
  void Unregister(const void* data) override;

 private:
  void Tell(const absl::Status& status);

  DeviceRuntime& runtime_;
  PinnedRanges& ranges_;
  const std::string device_;
  std::atomic<bool> told_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_PINNED_MEMORY_H_
