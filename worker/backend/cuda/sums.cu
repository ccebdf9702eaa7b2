// SPDX-License-Identifier: Apache-2.0

// Sums over rows and columns, and the operations based on them: normalisation
// and losses.
#include <type_traits>

#include "worker/backend/cuda/columns.cuh"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.cuh"
#include "worker/backend/cuda/maps.cuh"
#include "worker/backend/cuda/warps.cuh"

namespace holdfast {
namespace kernels {
namespace {

// A sum over the rows of a matrix takes two rounds: the rows are divided into
// ranges, and each block sums one range of up to 128 columns; then the ranges'
// sums are summed. A thread takes four adjacent columns, and every lanes-th row
// of the range, a few of them at once: one row at a time would not keep memory
// busy.
constexpr int kSumWidth = 4;
constexpr int kMaxTile = 32;
constexpr int kRowsAtOnce = 4;
// The minimum number of rows of a range for each thread, so that its work
// outweighs its overhead.
constexpr int kMinRows = 8;
// The number of blocks in a round: a few for each multiprocessor of the largest
// GPUs.
constexpr int64_t kSumBlocks = 1024;

// How a matrix is divided among blocks and threads. This follows from the shape
// alone, because otherwise the bits would depend on the GPU.
struct Cut {
  // The number of threads across the columns, and the number of rows that a
  // block takes at a time, which is a power of two.
  int tile, lanes;
  int64_t tiles;
  int64_t ranges;
  int64_t range_rows;
};

Cut CutMatrix(int64_t m, int64_t n) {
  const int64_t vectors = CeilOfRatio(n, kSumWidth);
  Cut cut;
  cut.tiles = CeilOfRatio(vectors, kMaxTile);
  cut.tile = static_cast<int>(CeilOfRatio(vectors, cut.tiles));
  cut.lanes = kThreads / kMaxTile;
  while (2 * cut.lanes * cut.tile <= kThreads) cut.lanes *= 2;
  const int64_t most = std::max<int64_t>(1, kSumBlocks / cut.tiles);
  const int64_t wanted = std::min(
      most, std::max<int64_t>(1, CeilOfRatio(m, cut.lanes * kMinRows)));
  cut.range_rows = std::max<int64_t>(1, CeilOfRatio(m, wanted));
  cut.ranges = std::max<int64_t>(1, CeilOfRatio(m, cut.range_rows));
  return cut;
}

// kSumWidth adjacent values, the first `count` of which are within the matrix.
template <bool kAligned, typename T>
__device__ Vector<T, kSumWidth> Load(const T* from, int count) {
  if (kAligned) return *AsVectors<kSumWidth>(from);
  Vector<T, kSumWidth> values = {};
#pragma unroll
  for (int k = 0; k < kSumWidth; ++k) {
    if (k < count) values.of[k] = from[k];
  }
  return values;
}

// What threads keep of a column, or read from a second matrix, if that is
// nothing.
struct Nothing {};
constexpr const Nothing* kNothing = nullptr;

// make(prepare(j), i, x[i, j], y[i, j]) returns kSums terms for row i and
// column j. If Y is Nothing, y is not read.
template <bool kAligned, int kSums, typename Column, typename X, typename Y,
          typename Prepare, typename Make>
__global__ void __launch_bounds__(kThreads)
    SumColumnsKernel(int64_t m, int n, int64_t range_rows, const X* x,
                     const Y* y, Prepare prepare, Make make, double* partial) {
  const int col = (blockIdx.x * blockDim.x + threadIdx.x) * kSumWidth;
  const int count = min(kSumWidth, n - col);
  const int lanes = blockDim.y;
  const int64_t begin = blockIdx.y * range_rows;
  const int64_t end = count > 0 ? min(m, begin + range_rows) : begin;
  Column columns[kSumWidth] = {};
#pragma unroll
  for (int k = 0; k < kSumWidth; ++k) {
    if (k < count) columns[k] = prepare(col + k);
  }
  double sums[kSums * kSumWidth] = {};
  for (int64_t first = begin + threadIdx.y; first < end;
       first += kRowsAtOnce * lanes) {
    Vector<X, kSumWidth> rows_x[kRowsAtOnce];
    Vector<Y, kSumWidth> rows_y[kRowsAtOnce];
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int64_t i = first + r * lanes;
      if (i >= end) continue;
      rows_x[r] = Load<kAligned>(x + i * n + col, count);
      if constexpr (!std::is_same_v<Y, Nothing>) {
        rows_y[r] = Load<kAligned>(y + i * n + col, count);
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int64_t i = first + r * lanes;
      if (i >= end) continue;
#pragma unroll
      for (int k = 0; k < kSumWidth; ++k) {
        const Sums<kSums> terms =
            make(columns[k], i, rows_x[r].of[k], rows_y[r].of[k]);
#pragma unroll
        for (int s = 0; s < kSums; ++s) {
          sums[s * kSumWidth + k] += terms.of[s];
        }
      }
    }
  }
  SumOverLanes(sums);
  if (threadIdx.y != 0) return;
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
#pragma unroll
    for (int k = 0; k < kSumWidth; ++k) {
      if (k >= count) continue;
      const int64_t row = static_cast<int64_t>(blockIdx.y) * kSums + s;
      partial[row * n + col + k] = sums[s * kSumWidth + k];
    }
  }
}

// Calls take(j, sums) with the sums over i of make(prepare(j), i, x[i, j], y[i,
// j]); prepare returns a Column. If Y is Nothing, y is not read.
template <int kSums, typename Column, typename X, typename Y, typename Prepare,
          typename Make, typename Take>
cudaError_t SumColumns(cudaStream_t stream, int64_t m, int64_t n, const X* x,
                       const Y* y, Prepare prepare, Make make, Take take,
                       void* workspace) {
  if (n == 0) return cudaSuccess;
  const bool aligned = n % kSumWidth == 0 && AreAligned(x, y);
  const Cut cut = CutMatrix(m, n);
  double* const partial = static_cast<double*>(workspace);
  const int cols = static_cast<int>(n);
  const cudaError_t error = Launch(
      stream,
      aligned ? SumColumnsKernel<true, kSums, Column, X, Y, Prepare, Make>
              : SumColumnsKernel<false, kSums, Column, X, Y, Prepare, Make>,
      dim3(static_cast<unsigned>(cut.tiles), static_cast<unsigned>(cut.ranges)),
      dim3(cut.tile, cut.lanes), m, cols, cut.range_rows, x, y, prepare, make,
      partial);
  if (error != cudaSuccess) return error;
  return FinishColumns<kSums>(stream, cut.ranges, cols, partial, take);
}

// A sum over all values of a matrix is cut like one over its rows, except that
// a thread takes every so many vectors of kSumWidth adjacent values, over the
// whole matrix, so that the blocks read adjacent memory at any time.
int64_t BlocksForAll(int64_t size) {
  return std::min(kSumBlocks,
                  CeilOfRatio(size, kSumWidth * kMinRows * kThreads));
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    SumSquaresKernel(int64_t size, const float* x, double* partial) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const int64_t vectors = (size + kSumWidth - 1) / kSumWidth;
  double sum[1] = {};
  for (int64_t first =
           static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
       first < vectors; first += kRowsAtOnce * stride) {
    Vector<float, kSumWidth> values[kRowsAtOnce] = {};
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int64_t i = first + r * stride;
      if (i >= vectors) continue;
      const int64_t left = size - i * kSumWidth;
      values[r] =
          Load<kAligned>(x + i * kSumWidth,
                         left < kSumWidth ? static_cast<int>(left) : kSumWidth);
    }
    // Values beyond the end are 0, which changes no sum of squares.
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
#pragma unroll
      for (int k = 0; k < kSumWidth; ++k) {
        const double value = values[r].of[k];
        sum[0] += value * value;
      }
    }
  }
  SumOverLanes(sum);
  if (threadIdx.y == 0) partial[blockIdx.x] = sum[0];
}

__device__ float InverseDeviation(float variance, float epsilon) {
  return 1.0f / sqrtf(variance + epsilon);
}

// The parameters of a column that threads keep in registers.
struct Normalization {
  float mean, inverse_deviation, scale, offset;

  __device__ float Centered(float x) const {
    return (x - mean) * inverse_deviation;
  }
  __device__ float Of(float x) const { return Centered(x) * scale + offset; }
};

struct NormalizationGradient {
  Normalization norm;
  // scale / deviation.
  float factor;
  // Means over the rows of dy, and of dy times the normalised x.
  float mean_dy, mean_dy_h;
};

__device__ Normalization ColumnOf(const ColumnNorm& norm, int j) {
  return {norm.mean[j], InverseDeviation(norm.variance[j], norm.epsilon),
          norm.scale[j], norm.offset[j]};
}

// The variance is computed in one pass, around x_0, the first row's value, as
// sum (x - x_0)^2 - m (mean - x_0)^2. This loses at most log2(m) bits of
// double's 53, since x_0 is one of the values.
template <typename X>
cudaError_t MomentsOf(cudaStream_t stream, const X* x, int64_t m, int64_t n,
                      float* mean, float* variance, void* workspace) {
  return SumColumns<2, double>(
      stream, m, n, x, kNothing,
      [=] __device__(int j) -> double { return float{x[j]}; },
      [=] __device__(double first, int64_t, float x, Nothing) -> Sums<2> {
        const double distance = double{x} - first;
        return {{distance, distance * distance}};
      },
      [=] __device__(int j, const Sums<2>& total) {
        const double rows = static_cast<double>(m);
        const double shift = total.of[0] / rows;
        const double spread = total.of[1] / rows - shift * shift;
        mean[j] = static_cast<float>(double{float{x[j]}} + shift);
        variance[j] = static_cast<float>(spread < 0 ? 0 : spread);
      },
      workspace);
}

// What follows a normalisation.
struct End {
  bool relu;

  __device__ float operator()(float value) const {
    return relu && value < 0.0f ? 0.0f : value;
  }
};

template <typename X>
cudaError_t Normalize(cudaStream_t stream, const X* x, const ColumnNorm& norm,
                      End end, int64_t m, int64_t n, float* y,
                      const RoundedCopy& rounded_y) {
  return MapColumns<Normalization>(
      stream, m, n, [=] __device__(int j) { return ColumnOf(norm, j); },
      [=] __device__(const Normalization& column, float x) -> float {
        return end(column.Of(x));
      },
      y, rounded_y, x);
}

template <typename X, typename Addend>
cudaError_t NormalizeAndAdd(cudaStream_t stream, const X* x,
                            const ColumnNorm& norm, const Addend* addend,
                            End end, int64_t m, int64_t n, float* y,
                            const RoundedCopy& rounded_y) {
  return MapColumns<Normalization>(
      stream, m, n, [=] __device__(int j) { return ColumnOf(norm, j); },
      [=] __device__(const Normalization& column, float x, float added)
          -> float { return end(column.Of(x) + added); },
      y, rounded_y, x, addend);
}

template <typename X, typename Dy>
cudaError_t NormalizeGradient(cudaStream_t stream, const X* x,
                              const ColumnNorm& norm, bool relu, const Dy* dy,
                              int64_t m, int64_t n, float* dscale,
                              float* doffset, float* dx,
                              const RoundedCopy& rounded_dx, void* workspace) {
  // The part of dy that passes through the relu.
  const auto passed = [=] __device__(const Normalization& column, float x,
                                     float dy) {
    return !relu || column.Of(x) > 0.0f ? dy : 0.0f;
  };
  const cudaError_t error = SumColumns<2, Normalization>(
      stream, m, n, x, dy, [=] __device__(int j) { return ColumnOf(norm, j); },
      [=] __device__(const Normalization& column, int64_t, float x,
                     float dy) -> Sums<2> {
        const double g = passed(column, x, dy);
        return {{g * column.Centered(x), g}};
      },
      [=] __device__(int j, const Sums<2>& total) {
        dscale[j] = static_cast<float>(total.of[0]);
        doffset[j] = static_cast<float>(total.of[1]);
      },
      workspace);
  const bool want_dx = dx != nullptr || rounded_dx.values != nullptr;
  if (error != cudaSuccess || !want_dx) return error;
  const float share = static_cast<float>(1.0 / static_cast<double>(m));
  return MapColumns<NormalizationGradient>(
      stream, m, n,
      [=] __device__(int j) -> NormalizationGradient {
        const Normalization of = ColumnOf(norm, j);
        return {of, of.scale * of.inverse_deviation, doffset[j] * share,
                dscale[j] * share};
      },
      [=] __device__(const NormalizationGradient& column, float x,
                     float dy) -> float {
        return column.factor * (passed(column.norm, x, dy) - column.mean_dy -
                                column.norm.Centered(x) * column.mean_dy_h);
      },
      dx, rounded_dx, x, dy);
}

// A loss's results for one row.
struct RowLoss {
  double loss;
  double correct;
  double absolute_error;
  double squared_error;
};

constexpr int kRowSums = 4;

// Sums the results of m rows, in one block: there are few numbers left here.
__global__ void __launch_bounds__(kThreads)
    SumRowLossesKernel(int64_t m, const RowLoss* rows, double* sums) {
  __shared__ double shared[kRowSums][kThreads];
  double own[kRowSums] = {};
  for (int64_t i = threadIdx.x; i < m; i += kThreads) {
    own[0] += rows[i].loss;
    own[1] += rows[i].correct;
    own[2] += rows[i].absolute_error;
    own[3] += rows[i].squared_error;
  }
  for (int k = 0; k < kRowSums; ++k) shared[k][threadIdx.x] = own[k];
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    for (int k = 0; k < kRowSums; ++k) {
      shared[k][threadIdx.x] += shared[k][threadIdx.x + half];
    }
  }
  if (threadIdx.x != 0) return;
  for (int k = 0; k < kRowSums; ++k) sums[k] = shared[k][0];
}

struct Greatest {
  float value;
  int place;
};

// The greatest of n values, the first among equals, returned to all of a warp's
// threads.
__device__ Greatest FindGreatest(const float* z, int n, int lane) {
  Greatest greatest = {-INFINITY, INT32_MAX};
  for (int j = lane; j < n; j += kWarp) {
    if (greatest.place == INT32_MAX || z[j] > greatest.value) {
      greatest = {z[j], j};
    }
  }
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const float value = __shfl_xor_sync(0xffffffffu, greatest.value, distance);
    const int place = __shfl_xor_sync(0xffffffffu, greatest.place, distance);
    if (value > greatest.value ||
        (value == greatest.value && place < greatest.place)) {
      greatest = {value, place};
    }
  }
  return greatest;
}

// make(i, lane) returns the RowLoss of row i; only that of lane 0 is used.
template <typename Make>
cudaError_t SumLosses(cudaStream_t stream, int64_t m, Make make, double* sums,
                      void* workspace) {
  RowLoss* const rows = static_cast<RowLoss*>(workspace);
  const cudaError_t error =
      ForEachRow(stream, m, [=] __device__(int64_t i, int lane) {
        const RowLoss row = make(i, lane);
        if (lane == 0) rows[i] = row;
      });
  if (error != cudaSuccess) return error;
  return Launch(stream, SumRowLossesKernel, dim3(1), dim3(kThreads), m, rows,
                sums);
}

// The target of output j, of n, for example i.
__device__ double Target(const LossTargets& targets, int64_t i, int j, int n) {
  if (targets.values != nullptr) return targets.values[i * n + j];
  const int32_t label = targets.labels[i];
  return n == 1 ? label : (j == label ? 1 : 0);
}

// The label of example i; -1 if there are no labels.
__device__ int32_t Label(const LossTargets& targets, int64_t i) {
  return targets.labels != nullptr ? targets.labels[i] : -1;
}

__device__ double Weight(const LossTargets& targets, int64_t i) {
  return targets.weights != nullptr ? targets.weights[i] : 1.0;
}

// The distance of an output from its target, and its derivative with respect to
// the output.
struct Distance {
  double value;
  double slope;
};

// distance(output - target) returns the loss of an output.
template <typename Function>
cudaError_t SumDistances(cudaStream_t stream, const float* z,
                         const LossTargets& targets, int64_t m, int64_t n,
                         float* dz, double* sums, void* workspace,
                         Function distance) {
  const int cols = static_cast<int>(n);
  const double values = static_cast<double>(m) * static_cast<double>(n);
  return SumLosses(
      stream, m,
      [=] __device__(int64_t i, int lane) -> RowLoss {
        const float* const row = z + i * n;
        const int32_t label = Label(targets, i);
        const double weight = Weight(targets, i);
        const int predicted = FindGreatest(row, cols, lane).place;
        // dz may be z: all have read what they need of others' elements.
        __syncwarp();
        double loss = 0;
        double absolute = 0;
        double squares = 0;
        for (int j = lane; j < cols; j += kWarp) {
          const double error = row[j] - Target(targets, i, j, cols);
          const Distance made = distance(error);
          loss += made.value;
          absolute += fabs(error);
          squares += error * error;
          if (dz == nullptr) continue;
          dz[i * n + j] = static_cast<float>(weight * made.slope / values);
        }
        return {weight * SumOverWarp(loss) / cols,
                predicted == label ? 1.0 : 0.0, SumOverWarp(absolute) / cols,
                SumOverWarp(squares) / cols};
      },
      sums, workspace);
}

}  // namespace

int64_t SumWorkspaceBytes(int64_t m, int64_t n) {
  // Sums over rows have at most two sums per column.
  const int64_t columns = CutMatrix(m, n).ranges * n * 2 * sizeof(double);
  const int64_t rows = m * static_cast<int64_t>(sizeof(RowLoss));
  const int64_t all = BlocksForAll(m * n) * sizeof(double);
  return std::max({columns, rows, all});
}

cudaError_t SumRows(cudaStream_t stream, const float* x, int64_t m, int64_t n,
                    float* sums, void* workspace) {
  return SumColumns<1, Nothing>(
      stream, m, n, x, kNothing, [=] __device__(int) -> Nothing { return {}; },
      [=] __device__(Nothing, int64_t, float x, Nothing) -> Sums<1> {
        return {{x}};
      },
      [=] __device__(int j, const Sums<1>& total) {
        sums[j] = static_cast<float>(total.of[0]);
      },
      workspace);
}

cudaError_t SumSquares(cudaStream_t stream, const float* x, int64_t size,
                       double* sum, void* workspace) {
  double* const partial = static_cast<double*>(workspace);
  const int64_t blocks = BlocksForAll(size);
  if (blocks > 0) {
    const bool aligned = size % kSumWidth == 0 && AreAligned(x);
    const cudaError_t error = Launch(
        stream, aligned ? SumSquaresKernel<true> : SumSquaresKernel<false>,
        dim3(static_cast<unsigned>(blocks)), dim3(1, kThreads), size, x,
        partial);
    if (error != cudaSuccess) return error;
  }
  return FinishColumns<1>(
      stream, blocks, 1, partial,
      [=] __device__(int, const Sums<1>& total) { *sum = total.of[0]; });
}

cudaError_t ColumnMoments(cudaStream_t stream, const Input& x, int64_t m,
                          int64_t n, float* mean, float* variance,
                          void* workspace) {
  return WithType(x, [&](const auto* x) {
    return MomentsOf(stream, x, m, n, mean, variance, workspace);
  });
}

cudaError_t NormalizeColumns(cudaStream_t stream, const Input& x,
                             const ColumnNorm& norm, const Input& addend,
                             bool relu, int64_t m, int64_t n, float* y,
                             const RoundedCopy& rounded_y) {
  const End end = {relu};
  if (addend.values == nullptr) {
    return WithType(x, [&](const auto* x) {
      return Normalize(stream, x, norm, end, m, n, y, rounded_y);
    });
  }
  return WithTypes(x, addend, [&](const auto* x, const auto* addend) {
    return NormalizeAndAdd(stream, x, norm, addend, end, m, n, y, rounded_y);
  });
}

cudaError_t NormalizeColumnsGradient(cudaStream_t stream, const Input& x,
                                     const ColumnNorm& norm, bool relu,
                                     const Input& dy, int64_t m, int64_t n,
                                     float* dscale, float* doffset, float* dx,
                                     const RoundedCopy& rounded_dx,
                                     void* workspace) {
  return WithTypes(x, dy, [&](const auto* x, const auto* dy) {
    return NormalizeGradient(stream, x, norm, relu, dy, m, n, dscale, doffset,
                             dx, rounded_dx, workspace);
  });
}

cudaError_t NormalizeRows(cudaStream_t stream, const float* x, float epsilon,
                          const float* scale, const float* offset, int64_t m,
                          int64_t n, float* moments, float* y) {
  const int cols = static_cast<int>(n);
  return ForEachRow(stream, m, [=] __device__(int64_t i, int lane) {
    const float* const from = x + i * n;
    float* const to = y + i * n;
    double sum = 0;
    for (int j = lane; j < cols; j += kWarp) sum += from[j];
    const double mean = SumOverWarp(sum) / cols;
    double squares = 0;
    for (int j = lane; j < cols; j += kWarp) {
      const double distance = from[j] - mean;
      squares += distance * distance;
    }
    const double variance = SumOverWarp(squares) / cols;
    const float center = static_cast<float>(mean);
    const float inverse =
        static_cast<float>(1.0 / sqrt(variance + double{epsilon}));
    if (lane == 0) {
      moments[2 * i] = center;
      moments[2 * i + 1] = inverse;
    }
    // y may be x: each element is read here only by the thread that writes it.
    for (int j = lane; j < cols; j += kWarp) {
      to[j] = (from[j] - center) * inverse * scale[j] + offset[j];
    }
  });
}

cudaError_t NormalizeRowsGradient(cudaStream_t stream, const float* x,
                                  const float* scale, const float* moments,
                                  const float* dy, int64_t m, int64_t n,
                                  float* dscale, float* doffset, float* dx,
                                  void* workspace) {
  const cudaError_t error = SumColumns<2, Nothing>(
      stream, m, n, x, dy, [=] __device__(int) -> Nothing { return {}; },
      [=] __device__(Nothing, int64_t i, float x, float dy) -> Sums<2> {
        const float h = (x - moments[2 * i]) * moments[2 * i + 1];
        const double g = dy;
        return {{g * h, g}};
      },
      [=] __device__(int j, const Sums<2>& total) {
        dscale[j] = static_cast<float>(total.of[0]);
        doffset[j] = static_cast<float>(total.of[1]);
      },
      workspace);
  if (error != cudaSuccess || dx == nullptr) return error;
  const int cols = static_cast<int>(n);
  return ForEachRow(stream, m, [=] __device__(int64_t i, int lane) {
    const float center = moments[2 * i];
    const float inverse = moments[2 * i + 1];
    double sum = 0;
    double sum_h = 0;
    for (int j = lane; j < cols; j += kWarp) {
      const double g = dy[i * n + j] * scale[j];
      sum += g;
      sum_h += g * ((x[i * n + j] - center) * inverse);
    }
    const float mean = static_cast<float>(SumOverWarp(sum) / cols);
    const float mean_h = static_cast<float>(SumOverWarp(sum_h) / cols);
    for (int j = lane; j < cols; j += kWarp) {
      const float h = (x[i * n + j] - center) * inverse;
      dx[i * n + j] = inverse * (dy[i * n + j] * scale[j] - mean - h * mean_h);
    }
  });
}

cudaError_t SoftmaxCrossEntropy(cudaStream_t stream, const float* z,
                                const LossTargets& targets, int64_t m,
                                int64_t n, float* dz, double* sums,
                                void* workspace) {
  const int cols = static_cast<int>(n);
  const double examples = static_cast<double>(m);
  return SumLosses(
      stream, m,
      [=] __device__(int64_t i, int lane) -> RowLoss {
        const float* const row = z + i * n;
        const int32_t label = Label(targets, i);
        const double weight = Weight(targets, i);
        const Greatest greatest = FindGreatest(row, cols, lane);
        const float at_label = row[label];
        double sum = 0;
        for (int j = lane; j < cols; j += kWarp) {
          sum += expf(row[j] - greatest.value);
        }
        sum = SumOverWarp(sum);
        if (dz != nullptr) {
          // dz may be z: all have read what they need of others' elements.
          __syncwarp();
          const float scale = static_cast<float>(weight / (sum * examples));
          for (int j = lane; j < cols; j += kWarp) {
            float value = expf(row[j] - greatest.value) * scale;
            if (j == label) value -= static_cast<float>(weight / examples);
            dz[i * n + j] = value;
          }
        }
        return {
            weight * (log(sum) - (double{at_label} - double{greatest.value})),
            greatest.place == label ? 1.0 : 0.0, 0, 0};
      },
      sums, workspace);
}

cudaError_t SigmoidCrossEntropy(cudaStream_t stream, const float* z,
                                const LossTargets& targets, int64_t m,
                                int64_t n, float* dz, double* sums,
                                void* workspace) {
  const int cols = static_cast<int>(n);
  const double values = static_cast<double>(m) * static_cast<double>(n);
  return SumLosses(
      stream, m,
      [=] __device__(int64_t i, int lane) -> RowLoss {
        const float* const row = z + i * n;
        const int32_t label = Label(targets, i);
        const double weight = Weight(targets, i);
        const int predicted = cols == 1 ? (row[0] > 0 ? 1 : 0)
                                        : FindGreatest(row, cols, lane).place;
        __syncwarp();
        double sum = 0;
        for (int j = lane; j < cols; j += kWarp) {
          const double logit = row[j];
          const double target = Target(targets, i, j, cols);
          const double e = exp(-fabs(logit));
          // NaN stays NaN, unlike with fmax.
          sum += (logit < 0 ? 0 : logit) - logit * target + log1p(e);
          if (dz == nullptr) continue;
          const double sigmoid = (logit < 0 ? e : 1.0) / (1.0 + e);
          dz[i * n + j] =
              static_cast<float>(weight * (sigmoid - target) / values);
        }
        return {weight * SumOverWarp(sum) / cols,
                predicted == label ? 1.0 : 0.0, 0, 0};
      },
      sums, workspace);
}

cudaError_t MeanSquaredError(cudaStream_t stream, const float* z,
                             const LossTargets& targets, int64_t m, int64_t n,
                             float* dz, double* sums, void* workspace) {
  return SumDistances(stream, z, targets, m, n, dz, sums, workspace,
                      [] __device__(double error) -> Distance {
                        return {error * error, 2.0 * error};
                      });
}

cudaError_t MeanAbsoluteError(cudaStream_t stream, const float* z,
                              const LossTargets& targets, int64_t m, int64_t n,
                              float* dz, double* sums, void* workspace) {
  return SumDistances(
      stream, z, targets, m, n, dz, sums, workspace,
      [] __device__(double error) -> Distance {
        return {fabs(error), error == 0 ? 0.0 : copysign(1.0, error)};
      });
}

cudaError_t Huber(cudaStream_t stream, const float* z,
                  const LossTargets& targets, float delta, int64_t m, int64_t n,
                  float* dz, double* sums, void* workspace) {
  const double knee = delta;
  return SumDistances(
      stream, z, targets, m, n, dz, sums, workspace,
      [=] __device__(double error) -> Distance {
        if (fabs(error) <= knee) return {0.5 * error * error, error};
        return {knee * (fabs(error) - 0.5 * knee), copysign(knee, error)};
      });
}

}  // namespace kernels
}  // namespace holdfast
