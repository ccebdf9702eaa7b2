// SPDX-License-Identifier: Apache-2.0

// Normalisation of columns and of rows. Sums are computed in double, whose
// rounding errors do not show in a float's precision.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "worker/backend/cpu/cpu_backend.h"

namespace holdfast {
namespace {

// The number of columns that are processed at a time: their sums stay in
// registers or the nearest cache, and loops over them are vectorized without
// changing the order of addition.
constexpr int64_t kBlock = 64;

// Calls visit(first column, size) for blocks of `cols` columns.
template <typename Visitor>
void VisitBlocks(int64_t cols, Visitor visit) {
  for (int64_t begin = 0; begin < cols; begin += kBlock) {
    visit(begin, std::min(kBlock, cols - begin));
  }
}

// Computes, for the columns j in [begin, begin + size), the sum of value(i, j)
// over the rows i.
template <typename Value>
void SumColumns(int64_t rows, int64_t begin, int64_t size, Value value,
                double (&sums)[kBlock]) {
  std::fill_n(sums, size, 0.0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < size; ++j) sums[j] += value(i, begin + j);
  }
}

// The sum of value(j) for j below n: element j is added to the (j mod 8)-th of
// eight partial sums, so that it does not wait for the one before it.
template <typename Value>
double SumRow(int64_t n, Value value) {
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  const int64_t whole = n / kSums * kSums;
  for (int64_t j = 0; j < whole; j += kSums) {
    for (int64_t k = 0; k < kSums; ++k) sums[k] += value(j + k);
  }
  for (int64_t j = whole; j < n; ++j) sums[j - whole] += value(j);
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

// Returns what NormalizeColumns computes from a value of column begin + j. The
// gradient uses this function too, because it must get the same bits.
class Normalization {
 public:
  Normalization(const ColumnNorm& norm, int64_t begin, int64_t size)
      : means_(norm.mean.data + begin), offsets_(norm.offset.data + begin) {
    for (int64_t j = 0; j < size; ++j) {
      factors_[j] = norm.scale.data[begin + j] /
                    std::sqrt(norm.variance.data[begin + j] + norm.epsilon);
    }
  }

  float operator()(float x, int64_t j) const {
    return (x - means_[j]) * factors_[j] + offsets_[j];
  }

 private:
  const float* const means_;
  const float* const offsets_;
  float factors_[kBlock];
};

}  // namespace

void CpuBackend::ColumnMoments(ConstMatrix x, Matrix mean, Matrix variance) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const double rows = static_cast<double>(x.rows);
  VisitBlocks(x.cols, [&](int64_t begin, int64_t size) {
    double means[kBlock];
    SumColumns(
        x.rows, begin, size,
        [&](int64_t i, int64_t j) -> double { return x.data[i * x.cols + j]; },
        means);
    for (int64_t j = 0; j < size; ++j) means[j] /= rows;
    double squares[kBlock];
    SumColumns(
        x.rows, begin, size,
        [&](int64_t i, int64_t j) {
          const double distance = x.data[i * x.cols + j] - means[j - begin];
          return distance * distance;
        },
        squares);
    for (int64_t j = 0; j < size; ++j) {
      mean.data[begin + j] = static_cast<float>(means[j]);
      variance.data[begin + j] = static_cast<float>(squares[j] / rows);
    }
  });
}

void CpuBackend::NormalizeColumns(ConstMatrix x, const ColumnNorm& norm,
                                  ConstMatrix addend, bool relu, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  VisitBlocks(x.cols, [&](int64_t begin, int64_t size) {
    const Normalization normalized(norm, begin, size);
    for (int64_t i = 0; i < x.rows; ++i) {
      const float* const from = x.data + i * x.cols + begin;
      float* const to = y.data + i * x.cols + begin;
      for (int64_t j = 0; j < size; ++j) to[j] = normalized(from[j], j);
      if (addend.data != nullptr) {
        const float* const added = addend.data + i * x.cols + begin;
        for (int64_t j = 0; j < size; ++j) to[j] += added[j];
      }
      if (relu) {
        for (int64_t j = 0; j < size; ++j) to[j] = to[j] < 0 ? 0 : to[j];
      }
    }
  });
  RoundResult(y);
}

void CpuBackend::NormalizeColumnsGradient(ConstMatrix x, const ColumnNorm& norm,
                                          bool relu, ConstMatrix dy,
                                          Matrix dscale, Matrix doffset,
                                          Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const double rows = static_cast<double>(x.rows);
  VisitBlocks(x.cols, [&](int64_t begin, int64_t size) {
    const Normalization normalization(norm, begin, size);
    const float* const means = norm.mean.data + begin;
    float inverses[kBlock];
    for (int64_t j = 0; j < size; ++j) {
      inverses[j] =
          1.0f / std::sqrt(norm.variance.data[begin + j] + norm.epsilon);
    }
    // The part of a row's dy that passes through the relu.
    float passed[kBlock];
    const auto gradient_of = [&](const float* value, int64_t i) {
      const float* const gradient = dy.data + i * x.cols + begin;
      if (!relu) return gradient;
      for (int64_t j = 0; j < size; ++j) {
        passed[j] = normalization(value[j], j) > 0 ? gradient[j] : 0;
      }
      return static_cast<const float*>(passed);
    };
    double sums[kBlock] = {};
    double products[kBlock] = {};
    for (int64_t i = 0; i < x.rows; ++i) {
      const float* const value = x.data + i * x.cols + begin;
      const float* const gradient = gradient_of(value, i);
      for (int64_t j = 0; j < size; ++j) {
        const float normalized = (value[j] - means[j]) * inverses[j];
        sums[j] += gradient[j];
        products[j] += double{gradient[j]} * double{normalized};
      }
    }
    float mean_gradients[kBlock];
    float mean_products[kBlock];
    float factors[kBlock];
    for (int64_t j = 0; j < size; ++j) {
      doffset.data[begin + j] = static_cast<float>(sums[j]);
      dscale.data[begin + j] = static_cast<float>(products[j]);
      mean_gradients[j] = static_cast<float>(sums[j] / rows);
      mean_products[j] = static_cast<float>(products[j] / rows);
      factors[j] = norm.scale.data[begin + j] * inverses[j];
    }
    if (dx.data == nullptr) return;
    for (int64_t i = 0; i < x.rows; ++i) {
      const float* const value = x.data + i * x.cols + begin;
      const float* const gradient = gradient_of(value, i);
      float* const to = dx.data + i * x.cols + begin;
      for (int64_t j = 0; j < size; ++j) {
        const float normalized = (value[j] - means[j]) * inverses[j];
        to[j] = factors[j] * (gradient[j] - mean_gradients[j] -
                              normalized * mean_products[j]);
      }
    }
  });
  if (dx.data != nullptr) RoundResult(dx);
}

void CpuBackend::NormalizeRows(ConstMatrix x, float epsilon, ConstMatrix scale,
                               ConstMatrix offset, Matrix moments, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const double cols = static_cast<double>(x.cols);
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* const from = x.data + i * x.cols;
    float* const to = y.data + i * x.cols;
    const double mean =
        SumRow(x.cols, [&](int64_t j) -> double { return from[j]; }) / cols;
    const double variance = SumRow(x.cols,
                                   [&](int64_t j) {
                                     const double distance = from[j] - mean;
                                     return distance * distance;
                                   }) /
                            cols;
    const float center = static_cast<float>(mean);
    const float inverse =
        static_cast<float>(1.0 / std::sqrt(variance + double{epsilon}));
    moments.data[2 * i] = center;
    moments.data[2 * i + 1] = inverse;
    for (int64_t j = 0; j < x.cols; ++j) {
      to[j] = (from[j] - center) * inverse * scale.data[j] + offset.data[j];
    }
  }
}

void CpuBackend::NormalizeRowsGradient(ConstMatrix x, ConstMatrix scale,
                                       ConstMatrix moments, ConstMatrix dy,
                                       Matrix dscale, Matrix doffset,
                                       Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const auto normalized = [&](int64_t i, int64_t j) {
    return (x.data[i * x.cols + j] - moments.data[2 * i]) *
           moments.data[2 * i + 1];
  };
  VisitBlocks(x.cols, [&](int64_t begin, int64_t size) {
    double sums[kBlock];
    SumColumns(
        x.rows, begin, size,
        [&](int64_t i, int64_t j) -> double { return dy.data[i * x.cols + j]; },
        sums);
    double products[kBlock];
    SumColumns(
        x.rows, begin, size,
        [&](int64_t i, int64_t j) {
          return double{dy.data[i * x.cols + j]} * double{normalized(i, j)};
        },
        products);
    for (int64_t j = 0; j < size; ++j) {
      doffset.data[begin + j] = static_cast<float>(sums[j]);
      dscale.data[begin + j] = static_cast<float>(products[j]);
    }
  });
  if (dx.data == nullptr) return;
  const double cols = static_cast<double>(x.cols);
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* const gradient = dy.data + i * x.cols;
    float* const to = dx.data + i * x.cols;
    const auto scaled = [&](int64_t j) { return gradient[j] * scale.data[j]; };
    const float mean_gradient = static_cast<float>(
        SumRow(x.cols, [&](int64_t j) -> double { return scaled(j); }) / cols);
    const float mean_product = static_cast<float>(
        SumRow(x.cols,
               [&](int64_t j) {
                 return double{scaled(j)} * double{normalized(i, j)};
               }) /
        cols);
    for (int64_t j = 0; j < x.cols; ++j) {
      to[j] = moments.data[2 * i + 1] *
              (scaled(j) - mean_gradient - normalized(i, j) * mean_product);
    }
  }
}

}  // namespace holdfast
