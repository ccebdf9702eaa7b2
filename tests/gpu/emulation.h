// SPDX-License-Identifier: Apache-2.0

// Runs CUDA kernels on the host, so that their results can be compared on a
// machine without a GPU. A kernel file is compiled as C++ with this header
// included first.
//
// The blocks of a kernel run one after the other. The threads of a block are
// fibers, which switch when they wait for one another: at __syncthreads,
// __syncwarp and shuffles. Only the features that our kernels use are emulated:
// no atomics, no dynamic shared memory. Races do not show; use
// compute-sanitizer on a GPU to find them.
#ifndef HOLDFAST_TESTS_GPU_EMULATION_H_
#define HOLDFAST_TESTS_GPU_EMULATION_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

// One block runs at a time, so shared memory can be static.
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)

// Built-in variables of the running thread.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);
double __shfl_xor_sync(unsigned mask, double value, int lane_mask);
inline float __shfl_xor_sync(unsigned mask, float value, int lane_mask) {
  return static_cast<float>(
      __shfl_xor_sync(mask, static_cast<double>(value), lane_mask));
}
inline int __shfl_xor_sync(unsigned mask, int value, int lane_mask) {
  return static_cast<int>(
      __shfl_xor_sync(mask, static_cast<double>(value), lane_mask));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}
using std::isnan;
using std::max;
using std::min;

namespace holdfast {

// Makes emulated launches, copies and fills of the calling thread go to
// `enqueue`, as work of the compute stream.
void EmulateOn(std::function<void(std::function<void()>)> enqueue);

namespace kernels {

// Runs thread() as each thread of each block.
cudaError_t EmulateLaunch(std::function<void()> thread, dim3 blocks,
                          dim3 threads);

}  // namespace kernels
}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_EMULATION_H_
