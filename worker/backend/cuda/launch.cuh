// SPDX-License-Identifier: Apache-2.0

// Launches kernels, and helps them to move and divide values.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_LAUNCH_CUH_
#define HOLDFAST_WORKER_BACKEND_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace holdfast {
namespace kernels {

inline constexpr int kThreads = 256;

// Enqueues a kernel. If another compiler than nvcc compiles it, a kernel is an
// ordinary host function, and its launch is emulated (tests/gpu/emulation.h).
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

inline int64_t CeilOfRatio(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename Function>
__global__ void __launch_bounds__(kThreads)
    ForEachKernel(int64_t size, Function function) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) function(i);
}

// Calls function(i) for i in [0, size), each in its own thread. Neighbouring i
// run in the same warp, so they should touch adjacent memory to coalesce.
template <typename Function>
cudaError_t ForEach(cudaStream_t stream, int64_t size, Function function) {
  if (size == 0) return cudaSuccess;
  return Launch(stream, ForEachKernel<Function>,
                dim3(static_cast<unsigned>(CeilOfRatio(size, kThreads))),
                dim3(kThreads), size, function);
}

// kWidth adjacent values, which are read and written by one instruction for
// every 16 bytes. A warp then has four times as many bytes in flight as with
// one float per thread, which are needed to saturate the memory's bandwidth.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Vector {
  T of[kWidth];
};

template <int kWidth, typename T>
__host__ __device__ Vector<T, kWidth>* AsVectors(T* values) {
  return reinterpret_cast<Vector<T, kWidth>*>(values);
}

template <int kWidth, typename T>
__host__ __device__ const Vector<T, kWidth>* AsVectors(const T* values) {
  return reinterpret_cast<const Vector<T, kWidth>*>(values);
}

// Returns whether all pointers are aligned so that they can be read as vectors.
template <typename... Pointers>
bool AreAligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Divides by a number that is known before the kernel runs, with a
// multiplication and two shifts (Granlund and Montgomery 1994). A GPU's own
// division takes dozens of instructions. With d <= 2^s and
// m = ceil(2^(31+s) / d), i / d is i m / 2^(31+s) for all i < 2^31: the error
// of m adds less than 1/d.
class Divisor {
 public:
  explicit Divisor(int64_t value)
      : value_(static_cast<int>(std::max<int64_t>(value, 1))) {
    while ((int64_t{1} << shift_) < value_) ++shift_;
    multiplier_ = static_cast<uint32_t>(
        ((uint64_t{1} << (31 + shift_)) + value_ - 1) / value_);
  }

  __host__ __device__ int value() const { return value_; }

  template <typename T>
  struct Result {
    T quotient;
    int remainder;
  };

  // `i` must be at least 0.
  __device__ Result<int> Divide(int i) const {
    const int quotient = static_cast<int>(
        __umulhi(static_cast<uint32_t>(i) << 1, multiplier_) >> shift_);
    return {quotient, i - quotient * value_};
  }
  __device__ Result<int64_t> Divide(int64_t i) const {
    if (i <= INT32_MAX) {
      const Result<int> small = Divide(static_cast<int>(i));
      return {small.quotient, small.remainder};
    }
    return {i / value_, static_cast<int>(i % value_)};
  }

 private:
  int value_;
  uint32_t multiplier_ = 0;
  int shift_ = 0;
};

}  // namespace kernels
}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_LAUNCH_CUH_
