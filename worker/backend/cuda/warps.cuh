// SPDX-License-Identifier: Apache-2.0

// Kernels in which each warp handles a row of a matrix.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_WARPS_CUH_
#define HOLDFAST_WORKER_BACKEND_CUDA_WARPS_CUH_

#include "worker/backend/cuda/launch.cuh"

namespace holdfast {
namespace kernels {

// The number of threads that sum a row. They are a warp, whose threads can
// exchange values without shared memory.
inline constexpr int kWarp = 32;
inline constexpr int kRowsPerBlock = 4;

// Returns to each thread of a warp the sum of the values of all its threads.
// Values are always paired in the same way: first neighbours, then pairs of
// neighbours and so on. The threads differ only in that one computes a + b and
// another b + a, which are equal.
inline __device__ double SumOverWarp(double value) {
  for (int distance = 1; distance < kWarp; distance *= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// Calls function(i, lane) in all 32 lanes of a warp, for each row i.
template <typename Function>
__global__ void __launch_bounds__(kWarp* kRowsPerBlock)
    ForEachRowKernel(int64_t m, Function function) {
  const int64_t i =
      static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y;
  if (i < m) function(i, static_cast<int>(threadIdx.x));
}

template <typename Function>
cudaError_t ForEachRow(cudaStream_t stream, int64_t m, Function function) {
  if (m == 0) return cudaSuccess;
  return Launch(stream, ForEachRowKernel<Function>,
                dim3(static_cast<unsigned>(CeilOfRatio(m, kRowsPerBlock))),
                dim3(kWarp, kRowsPerBlock), m, function);
}

}  // namespace kernels
}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_WARPS_CUH_
