// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_CUDA_STATUS_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// CUDA's result of trying `what`, as a Status: OK; RESOURCE_EXHAUSTED when it
// ran out of memory; FAILED_PRECONDITION when there is no driver, or one that
// is too old, or no GPU; INTERNAL for everything else.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDA_STATUS_H_
