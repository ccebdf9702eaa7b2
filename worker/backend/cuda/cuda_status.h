// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_CUDA_STATUS_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Converts CUDA's result of trying to do `what` to a Status: OK;
// RESOURCE_EXHAUSTED when CUDA ran out of memory; FAILED_PRECONDITION when
// there is no GPU or no driver, or the driver is too old; INTERNAL for every
// other error.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDA_STATUS_H_
