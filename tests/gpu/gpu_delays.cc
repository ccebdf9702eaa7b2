// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "tests/gpu/delay.h"
#include "tests/gpu/delayed_runtime.h"
#include "tests/gpu/device_under_test.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/cuda_device_math.h"
#include "worker/backend/cuda/cuda_device_runtime.h"
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/stream/stream_backend.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Backend>> MakeDelayedDeviceUnderTest(
    const DelayOptions& options) {
  constexpr int kGpu = 0;
  HOLDFAST_RETURN_IF_ERROR(CheckCudaDevice(kGpu));
  HOLDFAST_ASSIGN_OR_RETURN(auto runtime, CudaDeviceRuntime::Create(kGpu));
  int major = 0;
  HOLDFAST_RETURN_IF_ERROR(CudaStatus(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, kGpu),
      "reading the compute capability"));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto math,
      CudaDeviceMath::Create(runtime->stream(StreamId::kCompute), major, {}));
  const auto delay = [gpu = runtime.get()](StreamId stream,
                                           absl::Duration length) {
    return CudaStatus(
        EnqueueDelay(gpu->stream(stream), absl::ToInt64Nanoseconds(length)),
        "a delay");
  };
  StreamBackend::Options stream_options;
  stream_options.name = "the first GPU, with delays";
  return std::make_unique<StreamBackend>(
      std::make_unique<DelayedRuntime>(std::move(runtime), options, delay),
      std::move(math), std::move(stream_options));
}

}  // namespace holdfast
