// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_GPU_DEVICE_UNDER_TEST_H_
#define HOLDFAST_TESTS_GPU_DEVICE_UNDER_TEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/stream/device_runtime.h"

namespace holdfast {

// A backend on the device that is compared with the CPU. Three programs run the
// same comparisons:
//
// - gpu.cc, with the first GPU;
// - emulated.cc, with our kernels on the host (emulation.h), OpenBLAS in place
//   of cuBLAS, and direct convolutions in place of cuDNN (emulated_cudnn.h);
// - stand_in.cc, with the host's stand-in for a device and the CPU's
//   operations, which tests the comparisons themselves.
//
// The arithmetic of products, see CudaBackendOptions.
// Errors: FAILED_PRECONDITION or UNIMPLEMENTED, with the reason, if there is no
// such device; any other error is a failure.
struct ProductOptions {
  bool tf32 = false;
  Precision precision = Precision::kFloat32;
  bool activations = false;
  bool cudnn = true;
};
absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceUnderTest(
    const ProductOptions& options = {});

struct DelayOptions {
  uint64_t seed = 0;
  // If set, waits of the first stream for the second do nothing.
  std::optional<std::pair<StreamId, StreamId>> ignored_wait;
};
// The device with streams that pause at random, as `seed` determines
// (DelayedRuntime), and with the default ProductOptions.
// Errors: UNIMPLEMENTED if this device cannot be delayed; those of
// MakeDeviceUnderTest.
absl::StatusOr<std::unique_ptr<Backend>> MakeDelayedDeviceUnderTest(
    const DelayOptions& options);

// Whether the device computes with the CPU's own functions: then all results
// must equal the CPU's.
bool DeviceHasTheCpusBits();

// Whether several devices may exist at a time, and read one another's memory.
bool DeviceHasTwins();

// Whether to omit cases that take long and add little.
bool DeviceIsSlow();

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_DEVICE_UNDER_TEST_H_
