// Kernels in which a warp has a row of a matrix to itself.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_WARPS_CUH_
#define HOLDFAST_WORKER_BACKEND_CUDA_WARPS_CUH_

#include "worker/backend/cuda/launch.cuh"

namespace holdfast {
namespace kernels {

// Threads that share a row, where rows are summed: a warp, whose threads can
// add up without shared memory.
inline constexpr int kWarp = 32;
inline constexpr int kRowsPerBlock = 4;

// The sum over the warp's threads, in all of them. Always the same pairs: first
// neighbours, then pairs of neighbours and so on, so that a + b and b + a,
// which are equal, are all that differs between threads.
inline __device__ double SumOverWarp(double value) {
  for (int distance = 1; distance < kWarp; distance *= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// function(i, lane) by all 32 lanes of a warp, for each row.
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
