// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_GPU_DELAY_H_
#define HOLDFAST_TESTS_GPU_DELAY_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace holdfast {

// Enqueues a kernel on `stream` that does nothing for this time, in one thread.
cudaError_t EnqueueDelay(cudaStream_t stream, int64_t nanoseconds);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_DELAY_H_
