// SPDX-License-Identifier: Apache-2.0

// Bags of rows, dot products of pairs of vectors, and moves of columns.
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.cuh"
#include "worker/backend/cuda/warps.cuh"

namespace holdfast {
namespace kernels {
namespace {

// The number of values that a thread moves at a time, if addresses are aligned.
constexpr int kWidth = 4;

__device__ float WeightOf(const Bags& bags, int64_t k) {
  return bags.weights != nullptr ? bags.weights[k] : 1.0f;
}

// A row of a matrix, and its factor.
struct Term {
  int64_t row;
  float weight;
};

// The term of use k of a bag.
struct RowOfUse {
  Bags bags;

  __device__ Term operator()(int64_t k) const {
    return {bags.rows[k], WeightOf(bags, k)};
  }
};

// Returns the term of the u-th use, in the order of the uses' rows.
struct BagOfUse {
  Bags bags;
  Divisor by_merged;

  __device__ Term operator()(int64_t u) const {
    const uint32_t k = bags.uses[u];
    return {by_merged.Divide(static_cast<int>(bags.bags[k])).quotient,
            WeightOf(bags, k)};
  }
};

// y[i] = the sum of the terms [first[i * step], first[(i + 1) * step]) of rows
// of x. A row of y is shared by as many threads as it has vectors, so that a
// warp's reads of rows of x coalesce. Each thread keeps the loads of a few
// terms in flight.
template <int kColumns, typename MakeTerm>
cudaError_t SumVectors(cudaStream_t stream, int64_t count,
                       const uint32_t* first, int64_t step, MakeTerm make_term,
                       const float* x, int64_t d, float* y) {
  const int vectors = static_cast<int>(d / kColumns);
  const Divisor by_vectors(vectors);
  return ForEach(stream, count * vectors, [=] __device__(int64_t i) {
    const auto place = by_vectors.Divide(i);
    const int64_t begin = first[place.quotient * step];
    const int64_t end = first[(place.quotient + 1) * step];
    Vector<float, kColumns> sums = {};
#pragma unroll 4
    for (int64_t u = begin; u < end; ++u) {
      const Term term = make_term(u);
      const Vector<float, kColumns> row =
          AsVectors<kColumns>(x)[term.row * vectors + place.remainder];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        sums.of[j] += term.weight * row.of[j];
      }
    }
    AsVectors<kColumns>(y)[i] = sums;
  });
}

template <typename MakeTerm>
cudaError_t SumTerms(cudaStream_t stream, int64_t count, const uint32_t* first,
                     int64_t step, MakeTerm make_term, const float* x,
                     int64_t d, float* y) {
  const bool in_vectors = d % kWidth == 0 && AreAligned(x, y);
  return in_vectors
             ? SumVectors<kWidth>(stream, count, first, step, make_term, x, d,
                                  y)
             : SumVectors<1>(stream, count, first, step, make_term, x, d, y);
}

template <int kColumns>
cudaError_t AddPairwiseGradients(cudaStream_t stream, const Bags& bags,
                                 const float* rows, const float* sums,
                                 const float* dy, int64_t d, float* drows) {
  const int vectors = static_cast<int>(d / kColumns);
  const Divisor by_vectors(vectors);
  const BagOfUse bag_of = {bags, Divisor(bags.merged)};
  return ForEach(stream, bags.num_rows * vectors, [=] __device__(int64_t i) {
    const auto place = by_vectors.Divide(i);
    const int64_t begin = bags.begins[place.quotient];
    const int64_t end = bags.begins[place.quotient + 1];
    const Vector<float, kColumns> row = AsVectors<kColumns>(rows)[i];
    Vector<float, kColumns> gradient = {};
#pragma unroll 4
    for (int64_t u = begin; u < end; ++u) {
      const Term bag = bag_of(u);
      const float slope = dy[bag.row] * bag.weight;
      const Vector<float, kColumns> sum =
          AsVectors<kColumns>(sums)[bag.row * vectors + place.remainder];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        gradient.of[j] += slope * (sum.of[j] - bag.weight * row.of[j]);
      }
    }
    Vector<float, kColumns> total = AsVectors<kColumns>(drows)[i];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) total.of[j] += gradient.of[j];
    AsVectors<kColumns>(drows)[i] = total;
  });
}

// The side of the square that a block holds in shared memory at a time: so many
// vectors, and so many values of each vector. Each row of threads processes
// every eighth row of the square.
constexpr int kSide = 32;
constexpr int kLanes = 8;
constexpr int kRows = kSide / kLanes;

__host__ __device__ int64_t PairsBefore(int64_t p) { return p * (p - 1) / 2; }

// Each block computes a square of the products of an example's vectors with
// each other, on the diagonal or below.
__global__ void __launch_bounds__(kSide* kLanes)
    DotPairsKernel(const float* x, int n, int d, float* y) {
  // One extra column, so that the threads of a warp read from different banks.
  __shared__ float left[kSide][kSide + 1];
  __shared__ float right[kSide][kSide + 1];
  int tile_p = 0;
  int tile_q = blockIdx.y;
  while (tile_q > tile_p) tile_q -= ++tile_p;
  const int64_t example = blockIdx.x;
  const float* const vectors = x + example * n * d;
  const auto value = [&](int vector, int j) {
    return vector < n && j < d ? vectors[vector * d + j] : 0.0f;
  };
  float sums[kRows] = {};
  for (int first = 0; first < d; first += kSide) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = threadIdx.y + r * kLanes;
      const int j = first + threadIdx.x;
      left[row][threadIdx.x] = value(tile_p * kSide + row, j);
      right[row][threadIdx.x] = value(tile_q * kSide + row, j);
    }
    __syncthreads();
    const int count = min(kSide, d - first);
    for (int j = 0; j < count; ++j) {
      const float other = right[threadIdx.x][j];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[r] += left[threadIdx.y + r * kLanes][j] * other;
      }
    }
    // The next columns overwrite the same shared memory.
    __syncthreads();
  }
  float* const pairs = y + example * PairsBefore(n);
  const int q = tile_q * kSide + threadIdx.x;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int p = tile_p * kSide + threadIdx.y + r * kLanes;
    if (p < n && q < p) pairs[PairsBefore(p) + q] = sums[r];
  }
}

// Each block computes a square of an example's dx: some of its vectors, and
// some of their values.
__global__ void __launch_bounds__(kSide* kLanes)
    DotPairsGradientKernel(const float* x, const float* dy, int n, int d,
                           float* dx) {
  __shared__ float others[kSide][kSide];
  __shared__ float slopes[kSide][kSide];
  const int64_t example = blockIdx.x;
  const float* const vectors = x + example * n * d;
  const float* const pairs = dy + example * PairsBefore(n);
  const int first_p = blockIdx.y * kSide;
  const int j = blockIdx.z * kSide + threadIdx.x;
  float sums[kRows] = {};
  for (int first = 0; first < n; first += kSide) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = threadIdx.y + r * kLanes;
      others[row][threadIdx.x] =
          first + row < n && j < d ? vectors[(first + row) * d + j] : 0.0f;
      const int p = first_p + row;
      const int q = first + threadIdx.x;
      const bool is_pair = p < n && q < n && p != q;
      slopes[row][threadIdx.x] =
          is_pair ? pairs[PairsBefore(max(p, q)) + min(p, q)] : 0.0f;
    }
    __syncthreads();
    const int count = min(kSide, n - first);
    for (int q = 0; q < count; ++q) {
      const float other = others[q][threadIdx.x];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = threadIdx.y + r * kLanes;
        // Skipped rather than multiplied by 0, since `other` may not be finite.
        if (first_p + row != first + q) sums[r] += slopes[row][q] * other;
      }
    }
    // The next vectors overwrite the same shared memory.
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int p = first_p + threadIdx.y + r * kLanes;
    if (p < n && j < d) dx[(example * n + p) * d + j] = sums[r];
  }
}

unsigned Tiles(int64_t size) {
  return static_cast<unsigned>(CeilOfRatio(size, kSide));
}

// move(from, to) returns the new value of `to`.
template <int kColumns, typename Move>
cudaError_t MoveVectors(cudaStream_t stream, const float* x, int64_t x_row,
                        int64_t m, int64_t count, float* y, int64_t y_row,
                        Move move) {
  const int64_t x_vectors = x_row / kColumns;
  const int64_t y_vectors = y_row / kColumns;
  const int vectors = static_cast<int>(count / kColumns);
  const Divisor by_vectors(vectors);
  return ForEach(stream, m * vectors, [=] __device__(int64_t i) {
    const auto place = by_vectors.Divide(i);
    const Vector<float, kColumns> from =
        AsVectors<kColumns>(x)[place.quotient * x_vectors + place.remainder];
    Vector<float, kColumns>* const to =
        AsVectors<kColumns>(y) + place.quotient * y_vectors + place.remainder;
    *to = move(from, to);
  });
}

template <typename Move>
cudaError_t MoveColumns(cudaStream_t stream, const float* x, int64_t x_row,
                        int64_t m, int64_t count, float* y, int64_t y_row,
                        Move move) {
  const bool in_vectors = x_row % kWidth == 0 && y_row % kWidth == 0 &&
                          count % kWidth == 0 && AreAligned(x, y);
  return in_vectors
             ? MoveVectors<kWidth>(stream, x, x_row, m, count, y, y_row, move)
             : MoveVectors<1>(stream, x, x_row, m, count, y, y_row, move);
}

struct Replace {
  template <typename Columns>
  __device__ Columns operator()(const Columns& from, const Columns*) const {
    return from;
  }
};

struct AddTo {
  template <int kColumns>
  __device__ Vector<float, kColumns> operator()(
      const Vector<float, kColumns>& from,
      const Vector<float, kColumns>* to) const {
    Vector<float, kColumns> sums = *to;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sums.of[j] += from.of[j];
    return sums;
  }
};

}  // namespace

cudaError_t SumBags(cudaStream_t stream, const Bags& bags, const float* rows,
                    int64_t d, float* y) {
  return SumTerms(stream, bags.num_merged_bags, bags.offsets, bags.merged,
                  RowOfUse{bags}, rows, d, y);
}

cudaError_t SumBagsGradient(cudaStream_t stream, const Bags& bags,
                            const float* dy, int64_t d, float* drows) {
  return SumTerms(stream, bags.num_rows, bags.begins, 1,
                  BagOfUse{bags, Divisor(bags.merged)}, dy, d, drows);
}

cudaError_t PairwiseBags(cudaStream_t stream, const Bags& bags,
                         const float* rows, int64_t d, float* sums, float* y) {
  const int cols = static_cast<int>(d);
  return ForEachRow(
      stream, bags.num_merged_bags, [=] __device__(int64_t b, int lane) {
        const int64_t begin = bags.offsets[b * bags.merged];
        const int64_t end = bags.offsets[(b + 1) * bags.merged];
        double total = 0;
        for (int j = lane; j < cols; j += kWarp) {
          float sum = 0;
          float squares = 0;
#pragma unroll 4
          for (int64_t k = begin; k < end; ++k) {
            const float x = WeightOf(bags, k) *
                            rows[static_cast<int64_t>(bags.rows[k]) * cols + j];
            sum += x;
            squares += x * x;
          }
          sums[b * cols + j] = sum;
          total += sum * sum - squares;
        }
        total = SumOverWarp(total);
        if (lane == 0) y[b] = static_cast<float>(0.5 * total);
      });
}

cudaError_t AddPairwiseBagsGradient(cudaStream_t stream, const Bags& bags,
                                    const float* rows, const float* sums,
                                    const float* dy, int64_t d, float* drows) {
  const bool in_vectors = d % kWidth == 0 && AreAligned(rows, sums, drows);
  return in_vectors
             ? AddPairwiseGradients<kWidth>(stream, bags, rows, sums, dy, d,
                                            drows)
             : AddPairwiseGradients<1>(stream, bags, rows, sums, dy, d, drows);
}

cudaError_t DotPairs(cudaStream_t stream, const float* x, int64_t m, int64_t n,
                     int64_t d, float* y) {
  if (m == 0 || n < 2) return cudaSuccess;
  const unsigned tiles = Tiles(n);
  return Launch(stream, DotPairsKernel,
                dim3(static_cast<unsigned>(m), tiles * (tiles + 1) / 2),
                dim3(kSide, kLanes), x, static_cast<int>(n),
                static_cast<int>(d), y);
}

cudaError_t DotPairsGradient(cudaStream_t stream, const float* x,
                             const float* dy, int64_t m, int64_t n, int64_t d,
                             float* dx) {
  if (m == 0 || n == 0 || d == 0) return cudaSuccess;
  return Launch(stream, DotPairsGradientKernel,
                dim3(static_cast<unsigned>(m), Tiles(n), Tiles(d)),
                dim3(kSide, kLanes), x, dy, static_cast<int>(n),
                static_cast<int>(d), dx);
}

cudaError_t CopyColumns(cudaStream_t stream, const float* x, int64_t x_row,
                        int64_t m, int64_t count, float* y, int64_t y_row) {
  return MoveColumns(stream, x, x_row, m, count, y, y_row, Replace());
}

cudaError_t AddColumns(cudaStream_t stream, const float* x, int64_t x_row,
                       int64_t m, int64_t count, float* y, int64_t y_row) {
  return MoveColumns(stream, x, x_row, m, count, y, y_row, AddTo());
}

}  // namespace kernels
}  // namespace holdfast
