// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/cuda_backend.h"

namespace holdfast {

absl::Status CheckCudaDevice(int) {
  return absl::UnimplementedError(
      "this program was built without CUDA, on a machine without its compiler "
      "(nvcc)");
}

std::string CudaBusId(int) { return ""; }

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const CudaBackendOptions& options) {
  return CheckCudaDevice(options.index);
}

}  // namespace holdfast
