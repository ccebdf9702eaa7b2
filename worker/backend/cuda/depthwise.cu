// SPDX-License-Identifier: Apache-2.0

// Depthwise convolutions. Each value of a result has few terms, so that memory
// limits the speed: a thread computes adjacent channels of adjacent pixels, and
// the pixels that several threads read come from the nearest cache.
//
// Sums begin with 0 and are in the order of the window's positions, or of its
// pixels, as on the CPU.
#include <type_traits>

#include "worker/backend/cuda/columns.cuh"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.cuh"
#include "worker/backend/cuda/rounding.cuh"
#include "worker/backend/cuda/windows.cuh"

namespace holdfast {
namespace kernels {
namespace {

// Returns the value of a factor.
__device__ float Decode(AsFloat32, float value) { return value; }

__device__ float Decode(AsBfloat16, uint16_t half) {
  return halves::FromBfloat16(half);
}

__device__ float Decode(AsFloat16, uint16_t half) {
  return halves::FromFloat16(half);
}

// Returns a value of a matrix as a factor: rounded, unless it is already.
template <typename As, typename Given>
__device__ float FactorOf(As as, Given value) {
  if constexpr (std::is_same_v<Given, typename As::Value>) {
    return Decode(as, value);
  } else {
    return Decode(as, as(value));
  }
}

// Where a result is written: y, a rounded copy, or both.
template <typename As>
struct Result {
  float* y;
  uint16_t* copy;

  template <int kWidth>
  __device__ void Put(int64_t at, const Vector<float, kWidth>& made) const {
    if (y != nullptr) AsVectors<kWidth>(y)[at] = made;
    if constexpr (!std::is_same_v<As, AsFloat32>) {
      if (copy == nullptr) return;
      Vector<uint16_t, kWidth> rounded;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) rounded.of[k] = As()(made.of[k]);
      AsVectors<kWidth>(copy)[at] = rounded;
    }
  }
};

// A thread computes kRun adjacent positions, which share the loads of the
// kernel, and has as many loads of pixels in flight. If `flipped`, the kernel's
// window is rotated by 180 degrees. With a kWidth above 1 there must be one
// filter for each channel.
template <int kWidth, typename As, typename Given>
cudaError_t Convolve(cudaStream_t stream, const Given* x,
                     const typename As::Value* kernel,
                     const WindowShape& window, int multiplier, bool flipped,
                     int64_t images, As as, Result<As> result) {
  constexpr int kRun = 4;
  const int channels = window.channels / kWidth;
  const int filters = channels * multiplier;
  const Images runs(window.output_height,
                    static_cast<int>(CeilOfRatio(window.output_width, kRun)),
                    filters);
  const Axis rows = RowsOf(window);
  const Divisor by_multiplier(multiplier);
  const int last_tap = window.window_height * window.window_width - 1;
  const auto* const inputs = AsVectors<kWidth>(x);
  const auto* const factors = AsVectors<kWidth>(kernel);
  return ForEach(stream, images * runs.size(), [=] __device__(int64_t i) {
    const Place at = runs.Find(i);
    const int first = at.x * kRun;
    const int channel =
        kWidth > 1 ? at.channel : by_multiplier.Divide(at.channel).quotient;
    const int left = first * window.stride_width - window.pad_left;
    const Range seen = rows.Seen(at.y);
    Vector<float, kWidth> sums[kRun] = {};
    for (int h = seen.begin; h < seen.end; ++h) {
      const int first_tap = rows.InWindow(h, at.y) * window.window_width;
      const auto* const row =
          inputs + (at.image * window.height + h) * window.width * channels +
          channel;
      for (int u = 0; u < window.window_width; ++u) {
        const int tap = first_tap + u;
        const auto factor =
            factors[static_cast<int64_t>(flipped ? last_tap - tap : tap) *
                        filters +
                    at.channel];
        Vector<Given, kWidth> pixels[kRun];
        bool present[kRun];
#pragma unroll
        for (int r = 0; r < kRun; ++r) {
          const int w = left + u + r * window.stride_width;
          present[r] =
              first + r < window.output_width &&
              static_cast<unsigned>(w) < static_cast<unsigned>(window.width);
          if (present[r]) pixels[r] = row[static_cast<int64_t>(w) * channels];
        }
#pragma unroll
        for (int r = 0; r < kRun; ++r) {
          if (!present[r]) continue;
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            sums[r].of[k] +=
                FactorOf(as, pixels[r].of[k]) * Decode(as, factor.of[k]);
          }
        }
      }
    }
    const int64_t to =
        ((at.image * window.output_height + at.y) * window.output_width +
         first) *
            filters +
        at.channel;
#pragma unroll
    for (int r = 0; r < kRun; ++r) {
      if (first + r >= window.output_width) continue;
      result.Put(to + static_cast<int64_t>(r) * filters, sums[r]);
    }
  });
}

// A thread computes one pixel, from the positions that see it.
template <int kWidth, typename As, typename Given>
cudaError_t GatherGradient(cudaStream_t stream, const Given* dy,
                           const typename As::Value* kernel,
                           const WindowShape& window, int multiplier,
                           int64_t images, As as, Result<As> result) {
  const Windows windows(window, kWidth);
  const int filters = window.channels / kWidth * multiplier;
  const auto* const gradients = AsVectors<kWidth>(dy);
  const auto* const factors = AsVectors<kWidth>(kernel);
  return ForEach(
      stream, images * windows.inputs.size(), [=] __device__(int64_t i) {
        const Place at = windows.inputs.Find(i);
        const Range rows = windows.rows.SeenFrom(at.y);
        const Range cols = windows.cols.SeenFrom(at.x);
        Vector<float, kWidth> total = {};
        for (int m = 0; m < multiplier; ++m) {
          const int filter = at.channel * multiplier + m;
          Vector<float, kWidth> sum = {};
          for (int p = rows.begin; p < rows.end; ++p) {
            const int first_tap =
                windows.rows.InWindow(at.y, p) * window.window_width;
            const int64_t row =
                (at.image * window.output_height + p) * window.output_width;
            for (int q = cols.begin; q < cols.end; ++q) {
              const int tap = first_tap + windows.cols.InWindow(at.x, q);
              const auto gradient = gradients[(row + q) * filters + filter];
              const auto factor =
                  factors[static_cast<int64_t>(tap) * filters + filter];
#pragma unroll
              for (int k = 0; k < kWidth; ++k) {
                sum.of[k] +=
                    FactorOf(as, gradient.of[k]) * Decode(as, factor.of[k]);
              }
            }
          }
#pragma unroll
          for (int k = 0; k < kWidth; ++k) total.of[k] += sum.of[k];
        }
        result.Put(i, total);
      });
}

// Returns the window through which the gradient with respect to the images sees
// dy, with a stride of 1: the gradient is a convolution with the flipped
// kernel.
WindowShape Gradient(const WindowShape& window) {
  WindowShape gradient = window;
  gradient.height = window.output_height;
  gradient.width = window.output_width;
  gradient.pad_top = window.window_height - 1 - window.pad_top;
  gradient.pad_left = window.window_width - 1 - window.pad_left;
  gradient.output_height = window.height;
  gradient.output_width = window.width;
  return gradient;
}

// The gradient of a kernel is a sum over all positions, in two rounds: the
// lines of positions are divided into ranges, and each block sums a range for
// some channels and taps; then the ranges' sums are summed. A thread takes
// kTaps adjacent taps of a row of the window, and every lanes-th line of the
// range. It adds up kAtOnce positions in float32, and these sums in double.
constexpr int kTaps = 3;
constexpr int kAtOnce = 4;
constexpr int kMaxTile = 32;
// The minimum number of positions of a range for each thread, so that its work
// outweighs its overhead.
constexpr int kMinPositions = 32;
// The number of blocks: a few for each multiprocessor of the largest GPUs.
constexpr int64_t kBlocks = 1024;

// How the sum is divided among blocks and threads: this follows from the shapes
// alone, and not from alignment, because the bits depend on lanes and ranges.
struct GradientCut {
  // The groups of taps in a row of the window, in all, and in a block.
  int row_groups, groups, block_groups;
  // The number of threads across the filters, and that of lines that a block
  // takes at a time, which is a power of two.
  int tile, lanes;
  int64_t lines;
  int64_t ranges;
  int64_t range_lines;
};

GradientCut CutGradient(const WindowShape& window, int multiplier,
                        int64_t images) {
  GradientCut cut;
  cut.row_groups = static_cast<int>(CeilOfRatio(window.window_width, kTaps));
  cut.groups = cut.row_groups * window.window_height;
  const int64_t vectors =
      CeilOfRatio(int64_t{window.channels} * multiplier, kChannels);
  const int64_t tiles = CeilOfRatio(vectors, kMaxTile);
  cut.tile = static_cast<int>(CeilOfRatio(vectors, tiles));
  const int64_t group_blocks = CeilOfRatio(cut.groups, kThreads / cut.tile);
  cut.block_groups = static_cast<int>(CeilOfRatio(cut.groups, group_blocks));
  cut.lanes = 1;
  while (2 * cut.lanes * cut.tile * cut.block_groups <= kThreads) {
    cut.lanes *= 2;
  }
  cut.lines = images * window.output_height;
  const int64_t least =
      cut.lanes * CeilOfRatio(kMinPositions, window.output_width);
  const int64_t wanted =
      std::min(std::max<int64_t>(1, kBlocks / (tiles * group_blocks)),
               std::max<int64_t>(1, CeilOfRatio(cut.lines, least)));
  cut.range_lines = std::max<int64_t>(1, CeilOfRatio(cut.lines, wanted));
  cut.ranges = std::max<int64_t>(1, CeilOfRatio(cut.lines, cut.range_lines));
  return cut;
}

template <int kWidth, typename As, typename X, typename Dy>
__global__ void __launch_bounds__(kThreads)
    KernelGradientKernel(const X* x, const Dy* dy, WindowShape window,
                         Divisor by_multiplier, Divisor by_output_height,
                         GradientCut cut, As as, double* partial) {
  const int channels = window.channels / kWidth;
  const int filters = channels * by_multiplier.value();
  const int filter = blockIdx.x * cut.tile + threadIdx.x % cut.tile;
  const int group = blockIdx.y * cut.block_groups + threadIdx.x / cut.tile;
  const bool active = filter < filters && group < cut.groups;
  const int channel =
      kWidth > 1 ? filter : by_multiplier.Divide(filter).quotient;
  const int v = group / cut.row_groups;
  const int first_u = group % cut.row_groups * kTaps;
  const int taps = min(kTaps, window.window_width - first_u);
  const int64_t begin = blockIdx.z * cut.range_lines;
  const int64_t end = active ? min(cut.lines, begin + cut.range_lines) : begin;
  double sums[kTaps * kWidth] = {};
  for (int64_t line = begin + threadIdx.y; line < end; line += cut.lanes) {
    const auto at = by_output_height.Divide(line);
    const int h = at.remainder * window.stride_height - window.pad_top + v;
    if (static_cast<unsigned>(h) >= static_cast<unsigned>(window.height)) {
      continue;
    }
    const auto* const pixels =
        AsVectors<kWidth>(x) +
        (at.quotient * window.height + h) * window.width * channels + channel;
    const auto* const gradients =
        AsVectors<kWidth>(dy) + line * window.output_width * filters + filter;
    for (int first = 0; first < window.output_width; first += kAtOnce) {
      Vector<Dy, kWidth> gradient[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        if (first + r >= window.output_width) continue;
        gradient[r] = gradients[static_cast<int64_t>(first + r) * filters];
      }
      float some[kTaps * kWidth] = {};
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const int left =
            (first + r) * window.stride_width - window.pad_left + first_u;
        if (first + r >= window.output_width) continue;
#pragma unroll
        for (int t = 0; t < kTaps; ++t) {
          const int w = left + t;
          if (t >= taps ||
              static_cast<unsigned>(w) >= static_cast<unsigned>(window.width)) {
            continue;
          }
          const Vector<X, kWidth> pixel =
              pixels[static_cast<int64_t>(w) * channels];
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            some[t * kWidth + k] +=
                FactorOf(as, pixel.of[k]) * FactorOf(as, gradient[r].of[k]);
          }
        }
      }
#pragma unroll
      for (int k = 0; k < kTaps * kWidth; ++k) sums[k] += some[k];
    }
  }
  SumOverLanes(sums);
  if (threadIdx.y != 0 || !active) return;
  const int64_t rows = int64_t{window.window_height} * window.window_width;
  double* const to =
      partial +
      ((blockIdx.z * rows + v * window.window_width + first_u) * filters +
       filter) *
          kWidth;
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    if (t >= taps) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      to[static_cast<int64_t>(t) * filters * kWidth + k] = sums[t * kWidth + k];
    }
  }
}

template <typename As, typename X, typename Dy>
cudaError_t KernelGradient(cudaStream_t stream, const X* x, const Dy* dy,
                           const WindowShape& window, int multiplier,
                           int64_t images, As as, float* kernel_gradient,
                           void* workspace) {
  const GradientCut cut = CutGradient(window, multiplier, images);
  double* const partial = static_cast<double*>(workspace);
  const bool in_vectors = multiplier == 1 && InVectors(window.channels, x, dy);
  const int64_t filters = int64_t{window.channels} * multiplier;
  const int64_t vectors = in_vectors ? filters / kChannels : filters;
  const cudaError_t error = Launch(
      stream,
      in_vectors ? KernelGradientKernel<kChannels, As, X, Dy>
                 : KernelGradientKernel<1, As, X, Dy>,
      dim3(static_cast<unsigned>(CeilOfRatio(vectors, cut.tile)),
           static_cast<unsigned>(CeilOfRatio(cut.groups, cut.block_groups)),
           static_cast<unsigned>(cut.ranges)),
      dim3(cut.tile * cut.block_groups, cut.lanes), x, dy, window,
      Divisor(multiplier), Divisor(window.output_height), cut, as, partial);
  if (error != cudaSuccess) return error;
  const int size =
      static_cast<int>(filters * window.window_height * window.window_width);
  return FinishColumns<1>(stream, cut.ranges, size, partial,
                          [=] __device__(int j, const Sums<1>& total) {
                            kernel_gradient[j] =
                                static_cast<float>(total.of[0]);
                          });
}

// Calls function(values), with the values of the matrix as pointers to what
// they are.
template <typename As, typename Function>
cudaError_t WithValues(const FactorValues& matrix, As, Function function) {
  if constexpr (!std::is_same_v<As, AsFloat32>) {
    if (matrix.is_rounded) {
      return function(static_cast<const uint16_t*>(matrix.values));
    }
  }
  return function(static_cast<const float*>(matrix.values));
}

}  // namespace

cudaError_t DepthwiseConvolve(cudaStream_t stream, const FactorValues& x,
                              const void* kernel, const WindowShape& window,
                              int multiplier, int64_t images,
                              Precision precision, float* y,
                              const RoundedCopy& rounded_y) {
  return InPrecision(precision, [&](auto as) {
    using As = decltype(as);
    const auto* const factors = static_cast<const typename As::Value*>(kernel);
    const Result<As> result = {y, rounded_y.values};
    return WithValues(x, as, [&](const auto* values) {
      using Given = std::decay_t<decltype(*values)>;
      const bool in_vectors =
          multiplier == 1 &&
          InVectors(window.channels, values, factors, y, rounded_y.values);
      return (in_vectors ? Convolve<kChannels, As, Given>
                         : Convolve<1, As, Given>)(stream, values, factors,
                                                   window, multiplier,
                                                   /*flipped=*/false, images,
                                                   as, result);
    });
  });
}

cudaError_t DepthwiseInputGradient(cudaStream_t stream, const void* kernel,
                                   const FactorValues& dy,
                                   const WindowShape& window, int multiplier,
                                   int64_t images, Precision precision,
                                   float* dx, const RoundedCopy& rounded_dx) {
  return InPrecision(precision, [&](auto as) {
    using As = decltype(as);
    const auto* const factors = static_cast<const typename As::Value*>(kernel);
    const Result<As> result = {dx, rounded_dx.values};
    return WithValues(dy, as, [&](const auto* values) {
      using Given = std::decay_t<decltype(*values)>;
      const bool in_vectors =
          multiplier == 1 &&
          InVectors(window.channels, values, factors, dx, rounded_dx.values);
      if (multiplier == 1 && window.stride_height == 1 &&
          window.stride_width == 1) {
        return (in_vectors ? Convolve<kChannels, As, Given>
                           : Convolve<1, As, Given>)(stream, values, factors,
                                                     Gradient(window),
                                                     multiplier,
                                                     /*flipped=*/true, images,
                                                     as, result);
      }
      return (in_vectors ? GatherGradient<kChannels, As, Given>
                         : GatherGradient<1, As, Given>)(stream, values,
                                                         factors, window,
                                                         multiplier, images, as,
                                                         result);
    });
  });
}

int64_t DepthwiseWorkspaceBytes(const WindowShape& window, int multiplier,
                                int64_t images) {
  return CutGradient(window, multiplier, images).ranges * window.window_height *
         window.window_width * window.channels * multiplier *
         int64_t{sizeof(double)};
}

cudaError_t DepthwiseKernelGradient(cudaStream_t stream, const FactorValues& x,
                                    const FactorValues& dy,
                                    const WindowShape& window, int multiplier,
                                    int64_t images, Precision precision,
                                    float* kernel_gradient, void* workspace) {
  return InPrecision(precision, [&](auto as) {
    return WithValues(x, as, [&](const auto* pixels) {
      return WithValues(dy, as, [&](const auto* gradients) {
        return KernelGradient(stream, pixels, gradients, window, multiplier,
                              images, as, kernel_gradient, workspace);
      });
    });
  });
}

}  // namespace kernels
}  // namespace holdfast
