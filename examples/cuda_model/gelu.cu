// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>

#include "examples/cuda_model/gelu.h"
#include "worker/backend/cuda/launch.cuh"

namespace holdfast_examples {
namespace {

constexpr int kThreads = 256;
// Enough to fill any GPU; each thread loops over the remaining elements.
constexpr int64_t kMaxBlocks = 1 << 16;

constexpr float kRootHalf = 0.70710678f;
constexpr float kRootTwoPiInverse = 0.39894228f;

__device__ float Probability(float x) {
  return 0.5f * (1.0f + erff(x * kRootHalf));
}

// One thread per element, so that adjacent threads access adjacent elements.
__global__ void __launch_bounds__(kThreads)
    GeluKernel(const float* x, int64_t size, float* y) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < size; i += step) {
    y[i] = x[i] * Probability(x[i]);
  }
}

__global__ void __launch_bounds__(kThreads)
    GeluGradientKernel(const float* x, const float* dy, int64_t size,
                       float* dx) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < size; i += step) {
    const float density = kRootTwoPiInverse * expf(-0.5f * x[i] * x[i]);
    dx[i] = dy[i] * (Probability(x[i]) + x[i] * density);
  }
}

dim3 Blocks(int64_t size) {
  return dim3(static_cast<unsigned>(
      std::min(kMaxBlocks, (size + kThreads - 1) / kThreads)));
}

const char* WordsOf(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

// Launch is kernel<<<blocks, threads, 0, stream>>>(...), and can be emulated on
// the host for tests (tests/gpu/emulation.h).
const char* LaunchGelu(void* cuda_stream, const float* x, int64_t size,
                       float* y) {
  if (size == 0) return nullptr;
  return WordsOf(holdfast::kernels::Launch(
      static_cast<cudaStream_t>(cuda_stream), GeluKernel, Blocks(size),
      dim3(kThreads), x, size, y));
}

const char* LaunchGeluGradient(void* cuda_stream, const float* x,
                               const float* dy, int64_t size, float* dx) {
  if (size == 0) return nullptr;
  return WordsOf(holdfast::kernels::Launch(
      static_cast<cudaStream_t>(cuda_stream), GeluGradientKernel, Blocks(size),
      dim3(kThreads), x, dy, size, dx));
}

}  // namespace holdfast_examples
