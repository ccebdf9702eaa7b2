// SPDX-License-Identifier: Apache-2.0

// Convolutions as matrix products: im2col (Chellapilla et al. 2006); and the
// operations that compute depthwise convolutions without products.

#include <cblas.h>

#include <algorithm>
#include <cstdint>

#include "common/base/status_macros.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/depthwise.h"
#include "worker/backend/cpu/window_range.h"
#include "worker/backend/depthwise.h"

namespace holdfast {
namespace {

// The maximum number of values of columns that are made at a time, unless one
// line of positions has more. They take 1 MiB, so that they are still in a near
// cache when they are multiplied. The pieces determine how sums are split, and
// so the bits of the sums; pieces must therefore depend on nothing but the
// shapes.
constexpr int64_t kPieceValues = int64_t{1} << 18;

// A convolution of one group, as products of matrices with one row per position
// of the window:
//
//   y [places, filters of the group] =
//       columns [places, window_size x channels of the group]
//       kernel [the same, filters of the group]
//
// Positions are divided into pieces of whole lines. A line is a row of
// positions in an image; lines are numbered consecutively over all images.
struct Group {
  Group(const Convolution& convolution, int64_t group)
      : window(convolution.window),
        channels(window.channels / convolution.groups),
        first_channel(group * channels),
        all_filters(convolution.filters),
        filters(all_filters / convolution.groups),
        first_filter(group * filters),
        depth(convolution.kernel_rows()),
        piece_lines(std::max<int64_t>(
            kPieceValues / (window.output_width * depth), 1)) {}

  const Window& window;
  const int64_t channels;
  const int64_t first_channel;
  const int64_t all_filters;
  const int64_t filters;
  const int64_t first_filter;
  // The number of terms in a sum.
  const int64_t depth;
  const int64_t piece_lines;
};

// Returns whether the columns are the image itself.
bool IsPointwise(const Window& window) {
  return window.window_size() == 1 && window.stride_height == 1 &&
         window.stride_width == 1 && window.output_height == window.height &&
         window.output_width == window.width;
}

// A matrix whose rows are `stride` values apart.
struct Strided {
  const float* data = nullptr;
  int64_t stride = 0;
};

// Calls visit(image, column, length) for each range of values that are adjacent
// both in an image and in the columns: those that a row of the window sees at
// the position (p, q). `image` is an offset in the image, `column` one in the
// row of the columns. The ranges of a position come in the order of the window.
template <typename Visitor>
void VisitRanges(const Group& group, int64_t p, int64_t q, Visitor visit) {
  const Window& window = group.window;
  const WindowRange rows = RowRange(window, p);
  const WindowRange cols = ColumnRange(window, q);
  // Without groups the channels of neighbouring pixels are adjacent.
  const bool whole = group.channels == window.channels;
  const int64_t ranges = whole ? 1 : cols.size;
  const int64_t length = (whole ? cols.size : 1) * group.channels;
  for (int64_t v = 0; v < rows.size; ++v) {
    const int64_t image =
        ((rows.begin + v) * window.width + cols.begin) * window.channels +
        group.first_channel;
    const int64_t column =
        ((rows.skipped + v) * window.window_width + cols.skipped) *
        group.channels;
    for (int64_t u = 0; u < ranges; ++u) {
      visit(image + u * window.channels, column + u * group.channels, length);
    }
  }
}

// Calls visit(i, p, first) for the lines [begin, end): the image, the row of
// positions, and the number of positions from the start of line `begin` to this
// line.
template <typename Visitor>
void VisitLines(const Window& window, int64_t begin, int64_t end,
                Visitor visit) {
  for (int64_t line = begin; line < end; ++line) {
    visit(line / window.output_height, line % window.output_height,
          (line - begin) * window.output_width);
  }
}

// Sets `columns` to the values of x that the window sees at the positions of
// the lines [begin, end).
void MakeColumns(const Group& group, const float* x, int64_t begin, int64_t end,
                 float* columns) {
  const Window& window = group.window;
  VisitLines(window, begin, end, [&](int64_t i, int64_t p, int64_t first) {
    const float* image = x + i * window.input_size();
    for (int64_t q = 0; q < window.output_width; ++q) {
      float* row = columns + (first + q) * group.depth;
      const bool is_full = RowRange(window, p).size == window.window_height &&
                           ColumnRange(window, q).size == window.window_width;
      if (!is_full) std::fill_n(row, group.depth, 0.0f);
      VisitRanges(group, p, q, [&](int64_t from, int64_t to, int64_t length) {
        std::copy_n(image + from, length, row + to);
      });
    }
  });
}

// dx += the gradient of x that follows from `columns`, the gradient of the
// columns of the lines [begin, end).
void FoldColumns(const Group& group, const float* columns, int64_t begin,
                 int64_t end, float* dx) {
  const Window& window = group.window;
  VisitLines(window, begin, end, [&](int64_t i, int64_t p, int64_t first) {
    float* image = dx + i * window.input_size();
    for (int64_t q = 0; q < window.output_width; ++q) {
      const float* row = columns + (first + q) * group.depth;
      VisitRanges(group, p, q, [&](int64_t to, int64_t from, int64_t length) {
        for (int64_t j = 0; j < length; ++j) {
          image[to + j] += row[from + j];
        }
      });
    }
  });
}

// Calls visit(group, begin, end) for each group and piece of the lines of
// `images`.
template <typename Visitor>
void VisitPieces(const Convolution& convolution, int64_t images,
                 Visitor visit) {
  const int64_t lines = images * convolution.window.output_height;
  for (int64_t g = 0; g < convolution.groups; ++g) {
    const Group group(convolution, g);
    for (int64_t begin = 0; begin < lines; begin += group.piece_lines) {
      visit(group, begin, std::min(begin + group.piece_lines, lines));
    }
  }
}

// The number of values in the columns of a piece.
int64_t ColumnsSize(const Convolution& convolution, int64_t images) {
  if (IsPointwise(convolution.window)) return 0;
  const Group group(convolution, 0);
  return std::min(images * group.window.output_height, group.piece_lines) *
         group.window.output_width * group.depth;
}

// Returns the columns of a piece of x: made in `memory`, unless they are x
// itself.
Strided ColumnsOf(const Group& group, const float* x, int64_t begin,
                  int64_t end, float* memory) {
  const Window& window = group.window;
  if (IsPointwise(window)) {
    return {
        x + begin * window.output_width * window.channels + group.first_channel,
        window.channels};
  }
  MakeColumns(group, x, begin, end, memory);
  return {memory, group.depth};
}

}  // namespace

template <typename Compute>
absl::Status CpuBackend::ComputeDepthwise(const Convolution& convolution,
                                          int64_t images,
                                          const Compute& compute) {
  // Multiplications that take about as long as waking a thread.
  constexpr int64_t kFew = 1 << 18;
  const int64_t terms =
      images * convolution.output_size() * convolution.window.window_size();
  ThreadPool* pool = nullptr;
  if (options_.threads > 1 && terms > kFew) {
    if (pool_ == nullptr) {
      pool_ = std::make_unique<ThreadPool>(options_.threads, "convolution");
    }
    pool = pool_.get();
  }
  const Depthwise depthwise(convolution, options_.simd, pool);
  HOLDFAST_RETURN_IF_ERROR(Reserve(depthwise.MemorySize(images), &columns_));
  compute(depthwise, columns_.View(0, 0).data);
  return absl::OkStatus();
}

absl::Status CpuBackend::Convolve(const Convolution& convolution, ConstMatrix x,
                                  ConstMatrix kernel, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  HOLDFAST_RETURN_IF_ERROR(RoundFactors(&x, &kernel));
  if (IsDepthwise(convolution)) {
    return ComputeDepthwise(convolution, x.rows,
                            [&](const Depthwise& depthwise, float* memory) {
                              depthwise.Convolve(x, kernel, y, memory);
                              RoundResult(y);
                            });
  }
  HOLDFAST_RETURN_IF_ERROR(
      Reserve(ColumnsSize(convolution, x.rows), &columns_));
  float* memory = columns_.View(0, 0).data;
  VisitPieces(
      convolution, x.rows, [&](const Group& group, int64_t begin, int64_t end) {
        const int64_t width = group.window.output_width;
        const Strided columns = ColumnsOf(group, x.data, begin, end, memory);
        cblas_sgemm(
            CblasRowMajor, CblasNoTrans, CblasNoTrans, (end - begin) * width,
            group.filters, group.depth, 1.0f, columns.data, columns.stride,
            kernel.data + group.first_filter, group.all_filters, 0.0f,
            y.data + begin * width * group.all_filters + group.first_filter,
            group.all_filters);
      });
  RoundResult(y);
  return absl::OkStatus();
}

absl::Status CpuBackend::ConvolveKernelGradient(const Convolution& convolution,
                                                ConstMatrix x, ConstMatrix dy,
                                                Matrix kernel_gradient) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  HOLDFAST_RETURN_IF_ERROR(RoundFactors(&x, &dy));
  if (IsDepthwise(convolution)) {
    return ComputeDepthwise(
        convolution, x.rows, [&](const Depthwise& depthwise, float* memory) {
          depthwise.KernelGradient(x, dy, kernel_gradient, memory);
        });
  }
  HOLDFAST_RETURN_IF_ERROR(
      Reserve(ColumnsSize(convolution, x.rows), &columns_));
  std::fill_n(kernel_gradient.data, kernel_gradient.size(), 0.0f);
  float* memory = columns_.View(0, 0).data;
  VisitPieces(
      convolution, x.rows, [&](const Group& group, int64_t begin, int64_t end) {
        const int64_t width = group.window.output_width;
        const Strided columns = ColumnsOf(group, x.data, begin, end, memory);
        cblas_sgemm(
            CblasRowMajor, CblasTrans, CblasNoTrans, group.depth, group.filters,
            (end - begin) * width, 1.0f, columns.data, columns.stride,
            dy.data + begin * width * group.all_filters + group.first_filter,
            group.all_filters, 1.0f, kernel_gradient.data + group.first_filter,
            group.all_filters);
      });
  return absl::OkStatus();
}

absl::Status CpuBackend::ConvolveInputGradient(const Convolution& convolution,
                                               ConstMatrix kernel,
                                               ConstMatrix dy, Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  HOLDFAST_RETURN_IF_ERROR(RoundFactors(&kernel, &dy));
  if (IsDepthwise(convolution)) {
    return ComputeDepthwise(convolution, dx.rows,
                            [&](const Depthwise& depthwise, float* memory) {
                              depthwise.InputGradient(kernel, dy, dx, memory);
                              RoundResult(dx);
                            });
  }
  HOLDFAST_RETURN_IF_ERROR(
      Reserve(ColumnsSize(convolution, dx.rows), &columns_));
  const bool is_pointwise = IsPointwise(convolution.window);
  if (!is_pointwise) std::fill_n(dx.data, dx.size(), 0.0f);
  float* memory = columns_.View(0, 0).data;
  VisitPieces(
      convolution, dx.rows,
      [&](const Group& group, int64_t begin, int64_t end) {
        const int64_t width = group.window.output_width;
        const int64_t channels = group.window.channels;
        cblas_sgemm(
            CblasRowMajor, CblasNoTrans, CblasTrans, (end - begin) * width,
            group.depth, group.filters, 1.0f,
            dy.data + begin * width * group.all_filters + group.first_filter,
            group.all_filters, kernel.data + group.first_filter,
            group.all_filters, 0.0f,
            is_pointwise
                ? dx.data + begin * width * channels + group.first_channel
                : memory,
            is_pointwise ? channels : group.depth);
        if (!is_pointwise) FoldColumns(group, memory, begin, end, dx.data);
      });
  RoundResult(dx);
  return absl::OkStatus();
}

}  // namespace holdfast
