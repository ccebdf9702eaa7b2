// SPDX-License-Identifier: Apache-2.0

// Operations that move a window over images. In all of them a thread computes
// adjacent values of the result and reads the values that these depend on, so
// that no two threads write to the same address.
#include <type_traits>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.cuh"
#include "worker/backend/cuda/rounding.cuh"
#include "worker/backend/cuda/windows.cuh"

namespace holdfast {
namespace kernels {
namespace {

// A thread makes kRun adjacent values of a row, from kStep adjacent channels at
// a time: it divides once for all of them, and counts up from there. Without
// kGrouped there is one group, of one channel.
//
// Threads, and the values of an image, are counted in 32 bits: with two bytes
// written for each value, memory bandwidth leaves time for about 17
// instructions.
template <int kRun, int kStep, bool kGrouped, typename As>
cudaError_t Unfold(cudaStream_t stream, const typename As::Given* x,
                   const WindowShape& window, int groups, int64_t images,
                   int64_t row_size, As as, typename As::Value* columns) {
  const int group_channels = window.channels / groups;
  const int64_t runs = row_size / kRun;
  const int64_t rows = images * window.output_height * window.output_width;
  const int64_t image_size =
      int64_t{window.height} * window.width * window.channels;
  if (rows * runs > INT32_MAX || image_size > INT32_MAX) {
    return cudaErrorInvalidValue;
  }
  const Divisor by_runs(runs);
  const Divisor by_output_width(window.output_width);
  const Divisor by_output_height(window.output_height);
  const Divisor by_group(int64_t{window.window_height} * window.window_width *
                         group_channels);
  const Divisor by_channels(group_channels);
  const Divisor by_window_width(window.window_width);
  auto* const to = AsVectors<kRun>(columns);
  return ForEach(stream, rows * runs, [=] __device__(int64_t thread) {
    const int i = static_cast<int>(thread);
    const auto row = by_runs.Divide(i);
    const auto image_row = by_output_width.Divide(row.quotient);
    const auto image = by_output_height.Divide(image_row.quotient);
    const typename As::Given* const from = x + image.quotient * image_size;
    // The window's corner in the image, and the index within the window of the
    // value that is read.
    const int top = image.remainder * window.stride_height - window.pad_top;
    const int left =
        image_row.remainder * window.stride_width - window.pad_left;
    int tap = row.remainder * kRun;
    int g = 0;
    int c = 0;
    if (kGrouped) {
      const auto group = by_group.Divide(tap);
      const auto in_group = by_channels.Divide(group.remainder);
      g = group.quotient;
      tap = in_group.quotient;
      c = in_group.remainder;
    }
    const auto at = by_window_width.Divide(tap);
    int h = top + at.quotient;
    int w = left + at.remainder;
    Vector<typename As::Value, kRun> made;
#pragma unroll
    for (int k = 0; k < kRun; k += kStep) {
      Vector<typename As::Given, kStep> seen = {};
      if (static_cast<unsigned>(h) < static_cast<unsigned>(window.height) &&
          static_cast<unsigned>(w) < static_cast<unsigned>(window.width) &&
          (kGrouped ? g < groups : h < top + window.window_height)) {
        int place = h * window.width + w;
        if (kGrouped) {
          place = place * window.channels + g * group_channels + c;
        }
        seen = *AsVectors<kStep>(from + place);
      }
#pragma unroll
      for (int s = 0; s < kStep; ++s) made.of[k + s] = as(seen.of[s]);
      if (kGrouped) {
        c += kStep;
        if (c < group_channels) continue;
        c = 0;
      }
      w += kGrouped ? 1 : kStep;
      if (w < left + window.window_width) continue;
      w = left;
      ++h;
      if (kGrouped && h == top + window.window_height) {
        h = top;
        ++g;
      }
    }
    to[i] = made;
  });
}

constexpr int kTile = 32;
constexpr int kTileRows = 8;

// A block transposes a tile of one of the window's taps through shared memory,
// so that it reads and writes 32 adjacent values at a time.
template <typename As>
__global__ void __launch_bounds__(kTile* kTileRows)
    FlipKernelKernel(const float* kernel, int places, int channels, int filters,
                     As as, typename As::Value* flipped) {
  // One extra column, so that the threads of a warp read from different banks.
  __shared__ float tile[kTile][kTile + 1];
  const int64_t size = static_cast<int64_t>(channels) * filters;
  const float* const from = kernel + (places - 1 - blockIdx.z) * size;
  typename As::Value* const to = flipped + blockIdx.z * size;
  const int first_filter = blockIdx.x * kTile;
  const int first_channel = blockIdx.y * kTile;
  for (int row = threadIdx.y; row < kTile; row += kTileRows) {
    const int c = first_channel + row;
    const int f = first_filter + threadIdx.x;
    if (c < channels && f < filters) {
      tile[row][threadIdx.x] = from[static_cast<int64_t>(c) * filters + f];
    }
  }
  __syncthreads();
  for (int row = threadIdx.y; row < kTile; row += kTileRows) {
    const int f = first_filter + row;
    const int c = first_channel + threadIdx.x;
    if (c < channels && f < filters) {
      to[static_cast<int64_t>(f) * channels + c] = as(tile[threadIdx.x][row]);
    }
  }
}

template <int kWidth, typename As>
cudaError_t Fold(cudaStream_t stream, const float* columns,
                 const WindowShape& window, int groups, int64_t images, As as,
                 typename As::Value* dx) {
  const Windows windows(window, kWidth);
  const int group_channels = window.channels / groups / kWidth;
  const int group_cols =
      window.window_height * window.window_width * group_channels;
  const int64_t cols = int64_t{groups} * group_cols;
  const Divisor by_group(group_channels);
  const auto* const from = AsVectors<kWidth>(columns);
  auto* const to = AsVectors<kWidth>(dx);
  return ForEach(
      stream, images * windows.inputs.size(), [=] __device__(int64_t i) {
        const Place at = windows.inputs.Find(i);
        const auto group = by_group.Divide(at.channel);
        const int first_col = group.quotient * group_cols + group.remainder;
        const Range rows = windows.rows.SeenFrom(at.y);
        const Range places = windows.cols.SeenFrom(at.x);
        Vector<float, kWidth> sum = {};
        for (int p = rows.begin; p < rows.end; ++p) {
          const int v = windows.rows.InWindow(at.y, p);
          for (int q = places.begin; q < places.end; ++q) {
            const int u = windows.cols.InWindow(at.x, q);
            const int64_t row =
                (at.image * window.output_height + p) * window.output_width + q;
            const int tap = v * window.window_width + u;
            const Vector<float, kWidth> column =
                from[row * cols + first_col + tap * group_channels];
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sum.of[k] += column.of[k];
          }
        }
        Vector<typename As::Value, kWidth> made;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) made.of[k] = as(sum.of[k]);
        to[i] = made;
      });
}

// Calls function(values, h, w) for the pixels that the window sees at a
// position, row by row, with their place in the image. A few reads are in
// flight at once.
template <int kWidth, typename Function>
__device__ void ForEachSeen(const Windows& windows, const Place& out,
                            const Vector<float, kWidth>* images,
                            Function function) {
  constexpr int kAtOnce = 4;
  const Range rows = windows.rows.Seen(out.y);
  const Range cols = windows.cols.Seen(out.x);
  for (int h = rows.begin; h < rows.end; ++h) {
    for (int w = cols.begin; w < cols.end; w += kAtOnce) {
      Vector<float, kWidth> seen[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (w + k >= cols.end) continue;
        seen[k] =
            images[windows.inputs.IndexOf({out.image, h, w + k, out.channel})];
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (w + k < cols.end) function(seen[k], h, w + k);
      }
    }
  }
}

// Whether a value replaces the greatest so far. NaN is greater than all
// numbers, and stays.
__device__ bool IsGreater(float value, float greatest) {
  return !(value <= greatest) && !isnan(greatest);
}

template <int kWidth>
cudaError_t PoolMax(cudaStream_t stream, const float* x,
                    const WindowShape& window, int64_t images, float* y) {
  const Windows windows(window, kWidth);
  const auto* const from = AsVectors<kWidth>(x);
  auto* const to = AsVectors<kWidth>(y);
  return ForEach(
      stream, images * windows.outputs.size(), [=] __device__(int64_t i) {
        Vector<float, kWidth> greatest;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) greatest.of[k] = -INFINITY;
        ForEachSeen(windows, windows.outputs.Find(i), from,
                    [&](const Vector<float, kWidth>& seen, int, int) {
#pragma unroll
                      for (int k = 0; k < kWidth; ++k) {
                        if (IsGreater(seen.of[k], greatest.of[k])) {
                          greatest.of[k] = seen.of[k];
                        }
                      }
                    });
        to[i] = greatest;
      });
}

// MaxPoolGradient makes two passes. The first finds the pixel that the gradient
// of each position goes to, as the pixel's index in the window, row by row.
// With one pass each pixel would search every window that sees it, which took
// 3.3 ms on an H200 for 256 images of 112 x 112 x 64, six times as long as
// memory takes to read and write the values.
template <int kWidth, typename Number>
cudaError_t PoolMaxGradient(cudaStream_t stream, const float* x,
                            const float* dy, const WindowShape& window,
                            int64_t images, Number* numbers, float* dx) {
  const Windows windows(window, kWidth);
  const int window_width = window.window_width;
  const auto* const inputs = AsVectors<kWidth>(x);
  const auto* const gradients = AsVectors<kWidth>(dy);
  auto* const owners = AsVectors<kWidth>(numbers);
  auto* const to = AsVectors<kWidth>(dx);
  const cudaError_t error = ForEach(
      stream, images * windows.outputs.size(), [=] __device__(int64_t i) {
        const Place out = windows.outputs.Find(i);
        const auto number_of = [&](int h, int w) {
          return static_cast<Number>(windows.rows.InWindow(h, out.y) *
                                         window_width +
                                     windows.cols.InWindow(w, out.x));
        };
        const Number first = number_of(windows.rows.Seen(out.y).begin,
                                       windows.cols.Seen(out.x).begin);
        Vector<float, kWidth> greatest;
        Vector<Number, kWidth> owner;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          greatest.of[k] = -INFINITY;
          owner.of[k] = first;
        }
        ForEachSeen(windows, out, inputs,
                    [&](const Vector<float, kWidth>& seen, int h, int w) {
                      const Number number = number_of(h, w);
#pragma unroll
                      for (int k = 0; k < kWidth; ++k) {
                        if (IsGreater(seen.of[k], greatest.of[k])) {
                          greatest.of[k] = seen.of[k];
                          owner.of[k] = number;
                        }
                      }
                    });
        owners[i] = owner;
      });
  if (error != cudaSuccess) return error;
  return ForEach(
      stream, images * windows.inputs.size(), [=] __device__(int64_t i) {
        const Place at = windows.inputs.Find(i);
        const Range rows = windows.rows.SeenFrom(at.y);
        const Range cols = windows.cols.SeenFrom(at.x);
        Vector<float, kWidth> sum = {};
        for (int p = rows.begin; p < rows.end; ++p) {
          for (int q = cols.begin; q < cols.end; ++q) {
            const Number own = static_cast<Number>(
                windows.rows.InWindow(at.y, p) * window_width +
                windows.cols.InWindow(at.x, q));
            const int64_t out =
                windows.outputs.IndexOf({at.image, p, q, at.channel});
            const Vector<Number, kWidth> owner = owners[out];
            const Vector<float, kWidth> gradient = gradients[out];
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
              if (owner.of[k] == own) sum.of[k] += gradient.of[k];
            }
          }
        }
        to[i] = sum;
      });
}

// Whether the indices in a window fit in a byte.
bool FitsAByte(const WindowShape& window) {
  return int64_t{window.window_height} * window.window_width <= UINT8_MAX + 1;
}

template <int kWidth>
cudaError_t PoolAverage(cudaStream_t stream, const float* x,
                        const WindowShape& window, int64_t images, float* y) {
  const Windows windows(window, kWidth);
  const auto* const from = AsVectors<kWidth>(x);
  auto* const to = AsVectors<kWidth>(y);
  return ForEach(
      stream, images * windows.outputs.size(), [=] __device__(int64_t i) {
        const Place out = windows.outputs.Find(i);
        Vector<float, kWidth> sum = {};
        ForEachSeen(windows, out, from,
                    [&](const Vector<float, kWidth>& seen, int, int) {
#pragma unroll
                      for (int k = 0; k < kWidth; ++k) {
                        sum.of[k] += seen.of[k];
                      }
                    });
        const float count = static_cast<float>(windows.rows.Seen(out.y).size() *
                                               windows.cols.Seen(out.x).size());
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum.of[k] /= count;
        to[i] = sum;
      });
}

template <int kWidth>
cudaError_t PoolAverageGradient(cudaStream_t stream, const float* dy,
                                const WindowShape& window, int64_t images,
                                float* dx) {
  const Windows windows(window, kWidth);
  const auto* const from = AsVectors<kWidth>(dy);
  auto* const to = AsVectors<kWidth>(dx);
  return ForEach(
      stream, images * windows.inputs.size(), [=] __device__(int64_t i) {
        const Place at = windows.inputs.Find(i);
        const Range rows = windows.rows.SeenFrom(at.y);
        const Range cols = windows.cols.SeenFrom(at.x);
        Vector<float, kWidth> sum = {};
        for (int p = rows.begin; p < rows.end; ++p) {
          for (int q = cols.begin; q < cols.end; ++q) {
            const float count = static_cast<float>(windows.rows.Seen(p).size() *
                                                   windows.cols.Seen(q).size());
            const Vector<float, kWidth> gradient =
                from[windows.outputs.IndexOf({at.image, p, q, at.channel})];
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
              sum.of[k] += gradient.of[k] / count;
            }
          }
        }
        to[i] = sum;
      });
}

}  // namespace

cudaError_t ImagesToColumns(cudaStream_t stream, const void* x, bool is_rounded,
                            const WindowShape& window, int groups,
                            int64_t images, int64_t row_size,
                            Precision precision, void* columns) {
  // The number of halves in 16 bytes.
  constexpr int kRun = 8;
  const bool in_vectors = InVectors(window.channels / groups, x);
  // The channels of adjacent pixels are adjacent, and so they are in the
  // columns if there are no groups: such images are equivalent to wider images
  // with one channel.
  WindowShape seen = window;
  if (groups == 1) {
    seen.channels = 1;
    seen.width *= window.channels;
    seen.window_width *= window.channels;
    seen.stride_width *= window.channels;
    seen.pad_left *= window.channels;
  }
  const auto unfold_as = [&](auto as) {
    using As = decltype(as);
    const auto unfold = [&](auto function) {
      return function(stream, static_cast<const typename As::Given*>(x), seen,
                      groups, images, row_size, as,
                      static_cast<typename As::Value*>(columns));
    };
    if (row_size % kRun != 0) return unfold(Unfold<1, 1, true, As>);
    if (groups == 1) {
      return unfold(in_vectors ? Unfold<kRun, kChannels, false, As>
                               : Unfold<kRun, 1, false, As>);
    }
    return unfold(in_vectors ? Unfold<kRun, kChannels, true, As>
                             : Unfold<kRun, 1, true, As>);
  };
  return is_rounded ? unfold_as(AsItIs()) : InPrecision(precision, unfold_as);
}

cudaError_t ColumnsToImages(cudaStream_t stream, const float* columns,
                            const WindowShape& window, int groups,
                            int64_t images, Precision precision, void* dx) {
  const bool in_vectors = InVectors(window.channels / groups, columns, dx);
  return InPrecision(precision, [&](auto as) {
    using As = decltype(as);
    return (in_vectors ? Fold<kChannels, As>
                       : Fold<1, As>)(stream, columns, window, groups, images,
                                      as, static_cast<typename As::Value*>(dx));
  });
}

cudaError_t FlipKernel(cudaStream_t stream, const float* kernel,
                       const WindowShape& window, int filters,
                       Precision precision, void* flipped) {
  const int places = window.window_height * window.window_width;
  const auto tiles = [](int size) {
    return static_cast<unsigned>(CeilOfRatio(size, kTile));
  };
  const dim3 blocks(tiles(filters), tiles(window.channels), places);
  return InPrecision(precision, [&](auto as) {
    using As = decltype(as);
    return Launch(stream, FlipKernelKernel<As>, blocks, dim3(kTile, kTileRows),
                  kernel, places, window.channels, filters, as,
                  static_cast<typename As::Value*>(flipped));
  });
}

cudaError_t MaxPool(cudaStream_t stream, const float* x,
                    const WindowShape& window, int64_t images, float* y) {
  return InVectors(window.channels, x, y)
             ? PoolMax<kChannels>(stream, x, window, images, y)
             : PoolMax<1>(stream, x, window, images, y);
}

int64_t MaxPoolGradientWorkspaceBytes(const WindowShape& window,
                                      int64_t images) {
  const int64_t outputs =
      images * window.output_height * window.output_width * window.channels;
  return FitsAByte(window) ? outputs : outputs * int64_t{sizeof(int32_t)};
}

cudaError_t MaxPoolGradient(cudaStream_t stream, const float* x,
                            const float* dy, const WindowShape& window,
                            int64_t images, float* dx, void* workspace) {
  const auto compute = [&](auto* numbers) {
    using Number = std::remove_pointer_t<decltype(numbers)>;
    return (InVectors(window.channels, x, dy, dx)
                ? PoolMaxGradient<kChannels, Number>
                : PoolMaxGradient<1, Number>)(stream, x, dy, window, images,
                                              numbers, dx);
  };
  return FitsAByte(window) ? compute(static_cast<uint8_t*>(workspace))
                           : compute(static_cast<int32_t*>(workspace));
}

cudaError_t AveragePool(cudaStream_t stream, const float* x,
                        const WindowShape& window, int64_t images, float* y) {
  return InVectors(window.channels, x, y)
             ? PoolAverage<kChannels>(stream, x, window, images, y)
             : PoolAverage<1>(stream, x, window, images, y);
}

cudaError_t AveragePoolGradient(cudaStream_t stream, const float* dy,
                                const WindowShape& window, int64_t images,
                                float* dx) {
  return InVectors(window.channels, dy, dx)
             ? PoolAverageGradient<kChannels>(stream, dy, window, images, dx)
             : PoolAverageGradient<1>(stream, dy, window, images, dx);
}

}  // namespace kernels
}  // namespace holdfast
