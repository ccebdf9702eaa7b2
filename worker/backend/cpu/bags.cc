// Bags of rows, and dot products of the pairs of some vectors.
//
// Vectors of the CPU run over columns, or over the pairs of one vector with
// others, and each of their lanes sums in the order that backend.h gives or,
// for dot products, in that of the columns: so the bits are the same for
// vectors of every length.

#include <algorithm>
#include <cstdint>

#include "absl/base/attributes.h"
#include "common/simd.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace holdfast {
namespace {

// Values of the longest vectors.
constexpr int64_t kLanes = 16;

// Divides by a number that is known before a loop, which takes a
// multiplication and a shift (Granlund and Montgomery 1994): with d <= 2^s and
// m = ceil(2^(31+s) / d), i / d is i m / 2^(31+s) for all i < 2^31.
class Divisor {
 public:
  explicit Divisor(int64_t value) {
    while ((int64_t{1} << (shift_ - 31)) < value) ++shift_;
    multiplier_ = ((uint64_t{1} << shift_) + value - 1) / value;
  }

  ABSL_ATTRIBUTE_ALWAYS_INLINE int64_t Divide(uint32_t i) const {
    return static_cast<int64_t>((i * multiplier_) >> shift_);
  }

 private:
  int shift_ = 31;
  uint64_t multiplier_ = 0;
};

// Calls visit(Columns<n>(), first) for stretches of n columns, which come to
// `cols`: for as many as there are of the longest, of which sums stay in
// registers.
template <int64_t kCount>
struct Columns {
  static constexpr int64_t kSize = kCount;
};

template <typename Visitor>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void VisitColumns(int64_t cols,
                                                      const Visitor& visit) {
  int64_t j = 0;
  for (; j + 64 <= cols; j += 64) visit(Columns<64>(), j);
  for (; j + 16 <= cols; j += 16) visit(Columns<16>(), j);
  for (; j + 4 <= cols; j += 4) visit(Columns<4>(), j);
  for (; j < cols; ++j) visit(Columns<1>(), j);
}

// A row of a matrix, and by what it is multiplied.
struct Term {
  const float* row;
  float weight;
};

// y = the sum over u in [begin, end) of term(u), of kCount columns.
template <int64_t kCount, bool kWeighted, typename MakeTerm>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void SumTerms(int64_t begin, int64_t end,
                                                  const MakeTerm& term,
                                                  float* y) {
  float sums[kCount] = {};
  for (int64_t u = begin; u < end; ++u) {
    const Term of = term(u);
    for (int64_t j = 0; j < kCount; ++j) {
      sums[j] += kWeighted ? of.weight * of.row[j] : of.row[j];
    }
  }
  for (int64_t j = 0; j < kCount; ++j) y[j] = sums[j];
}

// Sums of terms for each of `count` results, of which i has the terms
// [first[i * step], first[(i + 1) * step]).
template <bool kWeighted, typename MakeTerm>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void SumAllTerms(int64_t count,
                                                     const uint32_t* first,
                                                     int64_t step, int64_t cols,
                                                     const MakeTerm& term,
                                                     float* y) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = first[i * step];
    const int64_t end = first[(i + 1) * step];
    VisitColumns(cols,
                 [&](auto columns, int64_t j) ABSL_ATTRIBUTE_ALWAYS_INLINE {
                   SumTerms<decltype(columns)::kSize, kWeighted>(
                       begin, end,
                       [&](int64_t u) ABSL_ATTRIBUTE_ALWAYS_INLINE {
                         const Term of = term(u);
                         return Term{of.row + j, of.weight};
                       },
                       y + i * cols + j);
                 });
  }
}

template <bool kWeighted>
void SumBagsLoop(const DeviceBags& bags, ConstMatrix rows, Matrix y) {
  RunSimd(BestSimd(), [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    SumAllTerms<kWeighted>(
        y.rows, bags.offsets, bags.merged, y.cols,
        [&](int64_t k) ABSL_ATTRIBUTE_ALWAYS_INLINE {
          return Term{rows.data + bags.rows[k] * rows.cols,
                      kWeighted ? bags.weights[k] : 1.0f};
        },
        y.data);
  });
}

// bag_of(k) is the merged bag of use k.
template <bool kWeighted, typename BagOf>
void SumBagsGradientLoop(const DeviceBags& bags, ConstMatrix dy, Matrix drows,
                         BagOf bag_of) {
  RunSimd(BestSimd(), [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    SumAllTerms<kWeighted>(
        drows.rows, bags.begins, 1, drows.cols,
        [&](int64_t u) ABSL_ATTRIBUTE_ALWAYS_INLINE {
          const uint32_t k = bags.uses[u];
          return Term{dy.data + bag_of(k) * dy.cols,
                      kWeighted ? bags.weights[k] : 1.0f};
        },
        drows.data);
  });
}

// Calls run(bag_of, is_weighted), the latter a std::bool_constant, for the
// kinds of bags that there are.
template <typename Run>
void ForKindOf(const DeviceBags& bags, const Run& run) {
  const auto for_weights = [&](auto bag_of) {
    if (bags.weights != nullptr) {
      run(bag_of, std::true_type());
    } else {
      run(bag_of, std::false_type());
    }
  };
  const uint32_t* const all = bags.bags;
  if (bags.merged == 1) {
    for_weights([all](uint32_t k)
                    ABSL_ATTRIBUTE_ALWAYS_INLINE { return int64_t{all[k]}; });
  } else {
    for_weights(
        [all, by_merged = Divisor(bags.merged)](uint32_t k)
            ABSL_ATTRIBUTE_ALWAYS_INLINE { return by_merged.Divide(all[k]); });
  }
}

// The sum of some columns of (sum^2 - squares): of halves, and halves of those.
template <int64_t kCount>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline float SumPairs(const float (&sums)[kCount],
                                                   float (&squares)[kCount]) {
  for (int64_t j = 0; j < kCount; ++j) {
    squares[j] = sums[j] * sums[j] - squares[j];
  }
  for (int64_t half = kCount / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) squares[j] += squares[j + half];
  }
  return squares[0];
}

template <bool kWeighted>
void PairwiseBagsLoop(const DeviceBags& bags, ConstMatrix rows, Matrix sums,
                      Matrix y) {
  RunSimd(BestSimd(), [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    const int64_t cols = sums.cols;
    for (int64_t b = 0; b < sums.rows; ++b) {
      const int64_t begin = bags.offsets[b * bags.merged];
      const int64_t end = bags.offsets[(b + 1) * bags.merged];
      float total = 0;
      VisitColumns(
          cols, [&](auto columns, int64_t first) ABSL_ATTRIBUTE_ALWAYS_INLINE {
            constexpr int64_t kCount = decltype(columns)::kSize;
            float of_bag[kCount] = {};
            float squares[kCount] = {};
            for (int64_t k = begin; k < end; ++k) {
              const float* const row = rows.data + bags.rows[k] * cols + first;
              const float weight = kWeighted ? bags.weights[k] : 1.0f;
              for (int64_t j = 0; j < kCount; ++j) {
                const float x = kWeighted ? weight * row[j] : row[j];
                of_bag[j] += x;
                squares[j] += x * x;
              }
            }
            float* const to = sums.data + b * cols + first;
            for (int64_t j = 0; j < kCount; ++j) to[j] = of_bag[j];
            total += SumPairs(of_bag, squares);
          });
      y.data[b] = 0.5f * total;
    }
  });
}

template <bool kWeighted, typename BagOf>
void AddPairwiseBagsGradientLoop(const DeviceBags& bags, ConstMatrix rows,
                                 ConstMatrix sums, ConstMatrix dy, Matrix drows,
                                 BagOf bag_of) {
  RunSimd(BestSimd(), [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    const int64_t cols = rows.cols;
    for (int64_t r = 0; r < drows.rows; ++r) {
      const int64_t begin = bags.begins[r];
      const int64_t end = bags.begins[r + 1];
      VisitColumns(cols, [&](auto columns,
                             int64_t first) ABSL_ATTRIBUTE_ALWAYS_INLINE {
        constexpr int64_t kCount = decltype(columns)::kSize;
        const float* const row = rows.data + r * cols + first;
        float gradient[kCount] = {};
        for (int64_t u = begin; u < end; ++u) {
          const uint32_t k = bags.uses[u];
          const int64_t bag = bag_of(k);
          const float weight = kWeighted ? bags.weights[k] : 1.0f;
          const float slope = kWeighted ? dy.data[bag] * weight : dy.data[bag];
          const float* const sum = sums.data + bag * cols + first;
          for (int64_t j = 0; j < kCount; ++j) {
            const float x = kWeighted ? weight * row[j] : row[j];
            gradient[j] += slope * (sum[j] - x);
          }
        }
        float* const to = drows.data + r * cols + first;
        for (int64_t j = 0; j < kCount; ++j) to[j] += gradient[j];
      });
    }
  });
}

}  // namespace

absl::StatusOr<DeviceBags> CpuBackend::UploadBags(const Bags& bags,
                                                  BagsBuffer*) {
  DeviceBags view;
  view.rows = bags.rows.data();
  view.bags = bags.bags.data();
  view.weights = bags.weights.empty() ? nullptr : bags.weights.data();
  view.offsets = bags.offsets.data();
  view.uses = bags.uses.data();
  view.begins = bags.begins.data();
  view.num_uses = static_cast<int64_t>(bags.rows.size());
  view.num_bags = bags.num_bags();
  view.num_rows = bags.num_rows();
  return view;
}

void CpuBackend::SumBags(const DeviceBags& bags, ConstMatrix rows, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (bags.weights != nullptr) {
    SumBagsLoop<true>(bags, rows, y);
  } else {
    SumBagsLoop<false>(bags, rows, y);
  }
}

void CpuBackend::SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                                 Matrix drows) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  ForKindOf(bags, [&](auto bag_of, auto is_weighted) {
    SumBagsGradientLoop<is_weighted>(bags, dy, drows, bag_of);
  });
}

void CpuBackend::PairwiseBags(const DeviceBags& bags, ConstMatrix rows,
                              Matrix sums, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (bags.weights != nullptr) {
    PairwiseBagsLoop<true>(bags, rows, sums, y);
  } else {
    PairwiseBagsLoop<false>(bags, rows, sums, y);
  }
}

void CpuBackend::AddPairwiseBagsGradient(const DeviceBags& bags,
                                         ConstMatrix rows, ConstMatrix sums,
                                         ConstMatrix dy, Matrix drows) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  ForKindOf(bags, [&](auto bag_of, auto is_weighted) {
    AddPairwiseBagsGradientLoop<is_weighted>(bags, rows, sums, dy, drows,
                                             bag_of);
  });
}

// A row's vectors are transposed first. Then the products of vector p with
// kLanes others are one vector of sums.
void CpuBackend::DotPairs(ConstMatrix x, int64_t n, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (y.size() == 0) return;
  const int64_t d = x.cols / n;
  const int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
  error_.Update(Reserve(d * padded, &transposed_));
  if (!error_.ok()) return;
  float* const transposed = transposed_.View(d, padded).data;
  std::fill_n(transposed, d * padded, 0.0f);
  RunSimd(BestSimd(), [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    for (int64_t i = 0; i < x.rows; ++i) {
      const float* const vectors = x.data + i * x.cols;
      for (int64_t q = 0; q < n; ++q) {
        for (int64_t j = 0; j < d; ++j) {
          transposed[j * padded + q] = vectors[q * d + j];
        }
      }
      float* to = y.data + i * y.cols;
      for (int64_t p = 1; p < n; ++p) {
        const float* const vector = vectors + p * d;
        for (int64_t first = 0; first < p; first += kLanes) {
          float sums[kLanes] = {};
          for (int64_t j = 0; j < d; ++j) {
            const float* const others = transposed + j * padded + first;
            const float value = vector[j];
            for (int64_t q = 0; q < kLanes; ++q) sums[q] += value * others[q];
          }
          const int64_t count = std::min(kLanes, p - first);
          for (int64_t q = 0; q < count; ++q) to[q] = sums[q];
          to += count;
        }
      }
    }
  });
}

void CpuBackend::DotPairsGradient(ConstMatrix x, int64_t n, ConstMatrix dy,
                                  Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (x.size() == 0) return;
  const int64_t d = x.cols / n;
  RunSimd(BestSimd(), [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    for (int64_t i = 0; i < x.rows; ++i) {
      const float* const vectors = x.data + i * x.cols;
      const float* const slopes = dy.data + i * dy.cols;
      for (int64_t p = 0; p < n; ++p) {
        VisitColumns(
            d, [&](auto columns, int64_t first) ABSL_ATTRIBUTE_ALWAYS_INLINE {
              constexpr int64_t kCount = decltype(columns)::kSize;
              float sums[kCount] = {};
              const float* slope = slopes + p * (p - 1) / 2;
              const float* other = vectors + first;
              for (int64_t q = 0; q < p; ++q, other += d) {
                const float by = slope[q];
                for (int64_t j = 0; j < kCount; ++j) sums[j] += by * other[j];
              }
              other += d;
              slope = slopes + p * (p + 1) / 2 + p;
              for (int64_t q = p + 1; q < n; ++q, other += d) {
                const float by = *slope;
                for (int64_t j = 0; j < kCount; ++j) sums[j] += by * other[j];
                slope += q;
              }
              float* const to = dx.data + i * x.cols + p * d + first;
              for (int64_t j = 0; j < kCount; ++j) to[j] = sums[j];
            });
      }
    }
  });
}

void CpuBackend::CopyColumns(ConstMatrix x, int64_t from, int64_t count,
                             Matrix y, int64_t to) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  for (int64_t i = 0; i < x.rows; ++i) {
    std::copy_n(x.data + i * x.cols + from, count, y.data + i * y.cols + to);
  }
}

void CpuBackend::AddColumns(ConstMatrix x, int64_t from, int64_t count,
                            Matrix y, int64_t to) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* const terms = x.data + i * x.cols + from;
    float* const sums = y.data + i * y.cols + to;
    for (int64_t j = 0; j < count; ++j) sums[j] += terms[j];
  }
}

}  // namespace holdfast
