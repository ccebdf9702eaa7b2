// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_TESTING_HOST_DEVICE_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_TESTING_HOST_DEVICE_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/pinned_ranges.h"
#include "worker/backend/stream/host_math.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"

namespace holdfast {

// A StreamBackend on the fake device.
struct HostDevice {
  explicit HostDevice(HostRuntime::Options options = {},
                      std::shared_ptr<PinnedRanges> pinned = nullptr,
                      CpuBackend::Options arithmetic = {})
      : cpu(*CpuBackend::Create(arithmetic)) {
    options.misuse = &misuse;
    auto made = std::make_unique<HostRuntime>(options);
    runtime = made.get();
    auto math = std::make_unique<HostMath>(runtime, cpu.get());
    StreamBackend::Options stream_options;
    stream_options.name = "host:0";
    stream_options.pinned = std::move(pinned);
    backend = std::make_unique<StreamBackend>(std::move(made), std::move(math),
                                              stream_options);
  }

  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  absl::Status misuse;
  std::unique_ptr<CpuBackend> cpu;
  // The backend's runtime.
  HostRuntime* runtime = nullptr;
  std::unique_ptr<StreamBackend> backend;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_TESTING_HOST_DEVICE_H_
