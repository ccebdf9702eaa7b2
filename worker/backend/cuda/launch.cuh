// How our kernels are launched: a thread per element.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_LAUNCH_CUH_
#define HOLDFAST_WORKER_BACKEND_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace holdfast {
namespace kernels {

inline constexpr int kThreads = 256;

// Enough to fill any GPU; what is left over is done in rounds.
inline constexpr int64_t kMaxBlocks = 1 << 16;

// Enqueues a kernel. Elsewhere than in nvcc it is a host function like any
// other and is emulated (tests/gpu/emulation.h).
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(cudaStream_t stream, void (*kernel)(Parameters...),
                   dim3 blocks, dim3 threads, const Arguments&... arguments) {
#ifdef __CUDACC__
  kernel<<<blocks, threads, 0, stream>>>(arguments...);
  return cudaGetLastError();
#else
  return EmulateLaunch([=] { kernel(arguments...); }, blocks, threads);
#endif
}

template <typename Function>
__global__ void __launch_bounds__(kThreads)
    ForEachKernel(int64_t size, Function function) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < size; i += step) {
    function(i);
  }
}

// function(i) for i in [0, size). Neighbours in i run in one warp, so what they
// touch had better lie side by side.
template <typename Function>
cudaError_t ForEach(cudaStream_t stream, int64_t size, Function function) {
  if (size == 0) return cudaSuccess;
  const int64_t blocks = std::min(kMaxBlocks, (size + kThreads - 1) / kThreads);
  return Launch(stream, ForEachKernel<Function>,
                dim3(static_cast<unsigned>(blocks)), dim3(kThreads), size,
                function);
}

struct Quotient {
  int64_t quotient;
  int remainder;
};

// i / divisor for i >= 0. GPUs divide 32 bits several times as fast as 64.
__device__ inline Quotient Divide(int64_t i, int divisor) {
  if (i <= UINT32_MAX) {
    const uint32_t small = static_cast<uint32_t>(i);
    const uint32_t quotient = small / static_cast<uint32_t>(divisor);
    return {quotient, static_cast<int>(small - quotient * divisor)};
  }
  return {i / divisor, static_cast<int>(i % divisor)};
}

}  // namespace kernels
}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_LAUNCH_CUH_
