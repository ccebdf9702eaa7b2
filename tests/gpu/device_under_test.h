#ifndef HOLDFAST_TESTS_GPU_DEVICE_UNDER_TEST_H_
#define HOLDFAST_TESTS_GPU_DEVICE_UNDER_TEST_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"

namespace holdfast {

// A backend on the device that is compared with the CPU. Three programs have
// the same comparisons:
//
// - gpu.cc, with the first GPU;
// - emulated.cc, with our kernels on the host (emulation.h), OpenBLAS for
//   cuBLAS, and for cuDNN the definition of a convolution (emulated_cudnn.h);
// - stand_in.cc, with the host's stand-in for a device and the CPU's
//   operations, which shows that the comparisons themselves hold.
//
// What products are made in: CudaBackendOptions.
// Errors: FAILED_PRECONDITION or UNIMPLEMENTED, with the reason, when there is
// no such device; whatever else is a failure.
struct ProductOptions {
  bool tf32 = false;
  Precision precision = Precision::kFloat32;
  bool cudnn = true;
};
absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceUnderTest(
    const ProductOptions& options = {});

// Whether the device computes with the CPU's own functions: then all results
// must be the CPU's.
bool DeviceHasTheCpusBits();

// Whether there may be several at a time, which read one another's memory.
bool DeviceHasTwins();

// Whether to leave out what only takes long.
bool DeviceIsSlow();

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_DEVICE_UNDER_TEST_H_
