// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/device_under_test.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceUnderTest(
    const ProductOptions& options) {
  return CreateCudaBackend({.index = 0,
                            .tf32 = options.tf32,
                            .precision = options.precision,
                            .activations = options.activations,
                            .cudnn = options.cudnn});
}

bool DeviceHasTheCpusBits() { return false; }

bool DeviceHasTwins() { return true; }

bool DeviceIsSlow() { return false; }

}  // namespace holdfast
