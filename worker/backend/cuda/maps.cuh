// SPDX-License-Identifier: Apache-2.0

// Kernels that compute each value of a matrix from the values at the same place
// in others. The result may be one of these matrices.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_MAPS_CUH_
#define HOLDFAST_WORKER_BACKEND_CUDA_MAPS_CUH_

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.cuh"
#include "worker/backend/cuda/rounding.cuh"

namespace holdfast {
namespace kernels {

template <int kWidth, typename Out, typename Function, typename... In>
__global__ void __launch_bounds__(kThreads)
    MapKernel(int64_t size, Function function, Out* y, const In*... x) {
  const int64_t first =
      (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  if (first + kWidth <= size) {
    const auto map = [&](Vector<In, kWidth>... values) {
      Vector<Out, kWidth> made;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) made.of[k] = function(values.of[k]...);
      return made;
    };
    *AsVectors<kWidth>(y + first) = map(*AsVectors<kWidth>(x + first)...);
    return;
  }
#pragma unroll 1
  for (int64_t i = first; i < size; ++i) y[i] = function(x[i]...);
}

// y[i] = function(x[i]...) for i in [0, size).
template <typename Out, typename Function, typename... In>
cudaError_t Map(cudaStream_t stream, int64_t size, Function function, Out* y,
                const In*... x) {
  if (size == 0) return cudaSuccess;
  // A thread writes 16 bytes of the result.
  constexpr int kWidth = 16 / sizeof(Out);
  const bool aligned = AreAligned(y, x...);
  const int64_t threads = aligned ? CeilOfRatio(size, kWidth) : size;
  return Launch(stream,
                aligned ? MapKernel<kWidth, Out, Function, In...>
                        : MapKernel<1, Out, Function, In...>,
                dim3(static_cast<unsigned>(CeilOfRatio(threads, kThreads))),
                dim3(kThreads), size, function, y, x...);
}

// What MapColumns writes besides the matrix itself: nothing, or a rounded copy.
struct NoCopy {
  bool is_aligned() const { return true; }
  template <int kWidth>
  __device__ void Put(int64_t, const Vector<float, kWidth>&) const {}
};

template <typename As>
struct CopyAs {
  uint16_t* to;

  bool is_aligned() const { return AreAligned(to); }
  template <int kWidth>
  __device__ void Put(int64_t at, const Vector<float, kWidth>& made) const {
    Vector<uint16_t, kWidth> rounded;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) rounded.of[k] = As()(made.of[k]);
    AsVectors<kWidth>(to)[at] = rounded;
  }
};

// A thread keeps the parameters of its columns in registers, and walks over the
// rows from the last to the first, because the rows that the kernel before read
// or wrote last are still in the cache. It takes two rows at a time if all
// values that it reads have 16 bits, so that as many bytes are in flight as
// with float32.
template <int kWidth, typename Column, typename Prepare, typename Function,
          typename Copy, typename... In>
__global__ void __launch_bounds__(kThreads)
    MapColumnsKernel(int64_t m, int vectors, Prepare prepare, Function function,
                     float* y, Copy copy, const In*... x) {
  const int vector = blockIdx.x * blockDim.x + threadIdx.x;
  if (vector >= vectors) return;
  Column columns[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) columns[k] = prepare(vector * kWidth + k);
  const auto map = [&](Vector<In, kWidth>... values) {
    Vector<float, kWidth> made;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      made.of[k] = function(columns[k], values.of[k]...);
    }
    return made;
  };
  const auto put = [&](int64_t at, const Vector<float, kWidth>& made) {
    if (y != nullptr) AsVectors<kWidth>(y)[at] = made;
    copy.Put(at, made);
  };
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  int64_t i = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  if constexpr ((kIsAmong<In, Bfloat16, Float16> && ...)) {
#pragma unroll 1
    for (; i + step < m; i += 2 * step) {
      const int64_t at = (m - 1 - i) * vectors + vector;
      const int64_t next = at - step * vectors;
      const auto map_both = [&](Vector<In, kWidth>... here,
                                Vector<In, kWidth>... there) {
        put(at, map(here...));
        put(next, map(there...));
      };
      map_both(AsVectors<kWidth>(x)[at]..., AsVectors<kWidth>(x)[next]...);
    }
  }
#pragma unroll 1
  for (; i < m; i += step) {
    const int64_t at = (m - 1 - i) * vectors + vector;
    put(at, map(AsVectors<kWidth>(x)[at]...));
  }
}

template <typename Column, typename Prepare, typename Function, typename Copy,
          typename... In>
cudaError_t MapColumnsTo(cudaStream_t stream, int64_t m, int64_t n,
                         Prepare prepare, Function function, float* y,
                         Copy copy, const In*... x) {
  // Several times as many blocks as any GPU can run at once, so that the last
  // ones leave few multiprocessors idle; but not so many that a thread calls
  // prepare for only a few rows.
  constexpr int64_t kBlocks = 4096;
  if (m == 0 || n == 0) return cudaSuccess;
  constexpr int kWidth = 4;
  const bool in_vectors =
      n % kWidth == 0 && AreAligned(y, x...) && copy.is_aligned();
  const int64_t vectors = in_vectors ? n / kWidth : n;
  const int64_t blocks_x = CeilOfRatio(vectors, kThreads);
  const int64_t threads_x = CeilOfRatio(vectors, blocks_x);
  // If rows are short, a block takes several rows, which are adjacent in
  // memory.
  const int64_t threads_y = kThreads / threads_x;
  const int64_t blocks_y = std::min(CeilOfRatio(m, threads_y),
                                    std::max<int64_t>(1, kBlocks / blocks_x));
  const auto narrow = [](int64_t value) {
    return static_cast<unsigned>(value);
  };
  return Launch(
      stream,
      in_vectors
          ? MapColumnsKernel<kWidth, Column, Prepare, Function, Copy, In...>
          : MapColumnsKernel<1, Column, Prepare, Function, Copy, In...>,
      dim3(narrow(blocks_x), narrow(blocks_y)),
      dim3(narrow(threads_x), narrow(threads_y)), m, static_cast<int>(vectors),
      prepare, function, y, copy, x...);
}

// y[i, j] = function(prepare(j), x[i, j]...) for the rows and columns of m x n;
// prepare returns a Column. If y is null, only the rounded copy is written. All
// 16-bit values must have the same precision; otherwise this is an error.
template <typename Column, typename Prepare, typename Function, typename... In>
cudaError_t MapColumns(cudaStream_t stream, int64_t m, int64_t n,
                       Prepare prepare, Function function, float* y,
                       const RoundedCopy& copy, const In*... x) {
  const auto map_to = [&](auto to) {
    return MapColumnsTo<Column>(stream, m, n, prepare, function, y, to, x...);
  };
  constexpr bool kReadsFloat16 = kIsAmong<Float16, In...>;
  constexpr bool kReadsBfloat16 = kIsAmong<Bfloat16, In...>;
  if (copy.values == nullptr) return map_to(NoCopy());
  if constexpr (!kReadsBfloat16) {
    if (copy.precision == Precision::kFloat16) {
      return map_to(CopyAs<AsFloat16>{copy.values});
    }
  }
  if constexpr (!kReadsFloat16) {
    if (copy.precision == Precision::kBfloat16) {
      return map_to(CopyAs<AsBfloat16>{copy.values});
    }
  }
  return cudaErrorInvalidValue;
}

}  // namespace kernels
}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_MAPS_CUH_
