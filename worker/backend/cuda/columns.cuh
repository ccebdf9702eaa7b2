// SPDX-License-Identifier: Apache-2.0

// The last round of sums over the rows of a matrix: ranges of rows have been
// summed, and the sums of the ranges are added up.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_COLUMNS_CUH_
#define HOLDFAST_WORKER_BACKEND_CUDA_COLUMNS_CUH_

#include "worker/backend/cuda/launch.cuh"

namespace holdfast {
namespace kernels {

template <int kSums>
struct Sums {
  double of[kSums] = {};
};

// Adds up `own` over the threads of a block with the same threadIdx.x; the
// thread with threadIdx.y 0 gets the sums. blockDim.y must be a power of two.
template <int kCount>
__device__ void SumOverLanes(double (&own)[kCount]) {
  __shared__ double shared[kCount][kThreads];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kCount; ++k) shared[k][thread] = own[k];
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      own[k] += shared[k][thread + half * blockDim.x];
      shared[k][thread] = own[k];
    }
  }
}

// Each block takes only a few columns: the ranges of a column are summed one
// after the other, so this round is bound by latency, and needs many blocks.
inline constexpr int kFinishTile = 8;

template <int kSums, typename Take>
__global__ void __launch_bounds__(kThreads)
    FinishColumnsKernel(int64_t ranges, int n, const double* partial,
                        Take take) {
  const int col = blockIdx.x * kFinishTile + threadIdx.x;
  double sums[kSums] = {};
  if (col < n) {
#pragma unroll 4
    for (int64_t range = threadIdx.y; range < ranges; range += blockDim.y) {
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
        sums[s] += partial[(range * kSums + s) * n + col];
      }
    }
  }
  SumOverLanes(sums);
  if (threadIdx.y != 0 || col >= n) return;
  Sums<kSums> total;
#pragma unroll
  for (int s = 0; s < kSums; ++s) total.of[s] = sums[s];
  take(col, total);
}

// Calls take(j, sums) with the sums over the ranges of partial[range, s, j],
// for the n columns j. A column's kSums sums are `sums`.
template <int kSums, typename Take>
cudaError_t FinishColumns(cudaStream_t stream, int64_t ranges, int n,
                          const double* partial, Take take) {
  return Launch(stream, FinishColumnsKernel<kSums, Take>,
                dim3(static_cast<unsigned>(CeilOfRatio(n, kFinishTile))),
                dim3(kFinishTile, kThreads / kFinishTile), ranges, n, partial,
                take);
}

}  // namespace kernels
}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_COLUMNS_CUH_
