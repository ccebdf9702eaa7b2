// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/delay.h"

namespace holdfast {
namespace {

__device__ int64_t Nanoseconds() {
  int64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void DelayKernel(int64_t nanoseconds) {
  // In case that the timer stands still: as many cycles at 4 GHz.
  const int64_t first_cycle = clock64();
  const int64_t begin = Nanoseconds();
  while (Nanoseconds() - begin < nanoseconds &&
         clock64() - first_cycle < 4 * nanoseconds) {
  }
}

}  // namespace

cudaError_t EnqueueDelay(cudaStream_t stream, int64_t nanoseconds) {
  DelayKernel<<<1, 1, 0, stream>>>(nanoseconds);
  return cudaGetLastError();
}

}  // namespace holdfast
