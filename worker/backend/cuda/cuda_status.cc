// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// 13000 -> "13.0".
std::string VersionName(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// CUDA reports a missing driver as one that is too old.
std::string DriverProblem() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "there is no NVIDIA driver on this machine (libcuda.so.1)";
  }
  return absl::StrCat("the NVIDIA driver is for CUDA ", VersionName(driver),
                      "; this program needs one for CUDA ",
                      VersionName(CUDART_VERSION), " or later");
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Clears the error; otherwise the next kernel launch would report it.
  cudaGetLastError();
  const std::string message =
      absl::StrCat(what, ": ", cudaGetErrorString(error), " (",
                   cudaGetErrorName(error), ")");
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorInsufficientDriver:
      return absl::FailedPreconditionError(DriverProblem());
    case cudaErrorNoDevice:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorSystemNotReady:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace holdfast
