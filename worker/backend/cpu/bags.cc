// SPDX-License-Identifier: Apache-2.0

// Bags of rows, and dot products of pairs of vectors.
//
// Loops are written with vectors of the CPU's length, so that sums stay in
// registers; GCC keeps the sums of loops that it vectorizes in memory. The
// lanes of a vector are columns, or pairs of one vector with others. Each lane
// sums in the order that backend.h specifies, dot products in the order of the
// columns, so the bits are the same for vectors of every length.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "absl/base/attributes.h"
#include "common/base/simd.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/vectors.h"

namespace holdfast {
namespace {

// Divides by a number that is known before a loop, with a multiplication and a
// shift (Granlund and Montgomery 1994): with d <= 2^s and m = ceil(2^(31+s) /
// d), i / d is i m / 2^(31+s) for all i < 2^31.
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

// A row of a matrix, and its factor.
struct Term {
  const float* row;
  float weight;
};

// Sums terms for each of `count` results; result i has the terms [first[i *
// step], first[(i + 1) * step]).
template <bool kWeighted, typename L, typename MakeTerm>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void SumTerms(int64_t count,
                                                  const uint32_t* first,
                                                  int64_t step, int64_t cols,
                                                  const MakeTerm& make_term,
                                                  float* y) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = first[i * step];
    const int64_t end = first[(i + 1) * step];
    VisitColumns<L>(
        cols, [&](auto range, int64_t j) ABSL_ATTRIBUTE_ALWAYS_INLINE {
          using S = decltype(range);
          using V = typename S::Lanes;
          typename V::Vector sums[S::kVectors] = {};
          for (int64_t u = begin; u < end; ++u) {
            const Term term = make_term(u);
            const float* const row = term.row + j;
#pragma GCC unroll 4
            for (int64_t v = 0; v < S::kVectors; ++v) {
              const typename V::Vector x = At<V>(row + v * V::kCount);
              sums[v] += kWeighted ? term.weight * x : x;
            }
          }
          float* const to = y + i * cols + j;
#pragma GCC unroll 4
          for (int64_t v = 0; v < S::kVectors; ++v) {
            At<V>(to + v * V::kCount) = sums[v];
          }
        });
  }
}

template <bool kWeighted>
void SumBagsLoop(Simd simd, const DeviceBags& bags, ConstMatrix rows,
                 Matrix y) {
  RunInVectors(simd, [=](auto lanes) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    SumTerms<kWeighted, decltype(lanes)>(
        y.rows, bags.offsets, bags.merged, y.cols,
        [&](int64_t k) ABSL_ATTRIBUTE_ALWAYS_INLINE {
          return Term{rows.data + bags.rows[k] * rows.cols,
                      kWeighted ? bags.weights[k] : 1.0f};
        },
        y.data);
  });
}

// bag_of(k) returns the merged bag of use k.
template <bool kWeighted, typename BagOf>
void SumBagsGradientLoop(Simd simd, const DeviceBags& bags, ConstMatrix dy,
                         Matrix drows, BagOf bag_of) {
  RunInVectors(simd, [=](auto lanes) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    SumTerms<kWeighted, decltype(lanes)>(
        drows.rows, bags.begins, 1, drows.cols,
        [&](int64_t u) ABSL_ATTRIBUTE_ALWAYS_INLINE {
          const uint32_t k = bags.uses[u];
          return Term{dy.data + bag_of(k) * dy.cols,
                      kWeighted ? bags.weights[k] : 1.0f};
        },
        drows.data);
  });
}

// Calls run(bag_of, is_weighted) with the function bag_of and the
// std::bool_constant is_weighted that are right for `bags`.
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

template <bool kWeighted>
void PairwiseBagsLoop(Simd simd, const DeviceBags& bags, ConstMatrix rows,
                      Matrix sums, Matrix y) {
  RunInVectors(simd, [=](auto lanes) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    const int64_t cols = sums.cols;
    for (int64_t b = 0; b < sums.rows; ++b) {
      const int64_t begin = bags.offsets[b * bags.merged];
      const int64_t end = bags.offsets[(b + 1) * bags.merged];
      double total = 0;
      VisitColumns<decltype(lanes)>(
          cols, [&](auto range, int64_t first) ABSL_ATTRIBUTE_ALWAYS_INLINE {
            using S = decltype(range);
            using V = typename S::Lanes;
            typename V::Vector of_bag[S::kVectors] = {};
            typename V::Vector squares[S::kVectors] = {};
            for (int64_t k = begin; k < end; ++k) {
              const float* const row = rows.data + bags.rows[k] * cols + first;
              const float weight = kWeighted ? bags.weights[k] : 1.0f;
#pragma GCC unroll 4
              for (int64_t v = 0; v < S::kVectors; ++v) {
                typename V::Vector x = At<V>(row + v * V::kCount);
                if (kWeighted) x = weight * x;
                of_bag[v] += x;
                squares[v] += x * x;
              }
            }
            float* const to = sums.data + b * cols + first;
            float pairs[S::kColumns];
#pragma GCC unroll 4
            for (int64_t v = 0; v < S::kVectors; ++v) {
              At<V>(to + v * V::kCount) = of_bag[v];
              At<V>(pairs + v * V::kCount) = of_bag[v] * of_bag[v] - squares[v];
            }
            for (const float of_column : pairs) total += of_column;
          });
      y.data[b] = static_cast<float>(0.5 * total);
    }
  });
}

template <bool kWeighted, typename BagOf>
void AddPairwiseBagsGradientLoop(Simd simd, const DeviceBags& bags,
                                 ConstMatrix rows, ConstMatrix sums,
                                 ConstMatrix dy, Matrix drows, BagOf bag_of) {
  RunInVectors(simd, [=](auto lanes) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    const int64_t cols = rows.cols;
    for (int64_t r = 0; r < drows.rows; ++r) {
      const int64_t begin = bags.begins[r];
      const int64_t end = bags.begins[r + 1];
      VisitColumns<decltype(lanes)>(
          cols, [&](auto range, int64_t first) ABSL_ATTRIBUTE_ALWAYS_INLINE {
            using S = decltype(range);
            using V = typename S::Lanes;
            const float* const row = rows.data + r * cols + first;
            typename V::Vector gradient[S::kVectors] = {};
            for (int64_t u = begin; u < end; ++u) {
              const uint32_t k = bags.uses[u];
              const int64_t bag = bag_of(k);
              const float weight = kWeighted ? bags.weights[k] : 1.0f;
              const float slope =
                  kWeighted ? dy.data[bag] * weight : dy.data[bag];
              const float* const sum = sums.data + bag * cols + first;
#pragma GCC unroll 4
              for (int64_t v = 0; v < S::kVectors; ++v) {
                typename V::Vector x = At<V>(row + v * V::kCount);
                if (kWeighted) x = weight * x;
                gradient[v] += slope * (At<V>(sum + v * V::kCount) - x);
              }
            }
            float* const to = drows.data + r * cols + first;
#pragma GCC unroll 4
            for (int64_t v = 0; v < S::kVectors; ++v) {
              At<V>(to + v * V::kCount) += gradient[v];
            }
          });
    }
  });
}

// Transposes n rows of d values: to[j * to_row + q] = x[q * d + j]. Does so in
// squares of four by four, because to move one value at a time would take as
// long as the arithmetic that follows.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void Transpose(const float* x, int64_t n,
                                                   int64_t d, int64_t to_row,
                                                   float* to) {
  using Four = Lanes<4>;
  int64_t q = 0;
  for (; q + 4 <= n; q += 4) {
    const float* const rows = x + q * d;
    int64_t j = 0;
    for (; j + 4 <= d; j += 4) {
      const Four::Vector a = At<Four>(rows + j);
      const Four::Vector b = At<Four>(rows + d + j);
      const Four::Vector c = At<Four>(rows + 2 * d + j);
      const Four::Vector e = At<Four>(rows + 3 * d + j);
      const Four::Vector ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      const Four::Vector ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Four::Vector ce_low = __builtin_shufflevector(c, e, 0, 4, 1, 5);
      const Four::Vector ce_high = __builtin_shufflevector(c, e, 2, 6, 3, 7);
      float* const at = to + j * to_row + q;
      At<Four>(at) = __builtin_shufflevector(ab_low, ce_low, 0, 1, 4, 5);
      At<Four>(at + to_row) =
          __builtin_shufflevector(ab_low, ce_low, 2, 3, 6, 7);
      At<Four>(at + 2 * to_row) =
          __builtin_shufflevector(ab_high, ce_high, 0, 1, 4, 5);
      At<Four>(at + 3 * to_row) =
          __builtin_shufflevector(ab_high, ce_high, 2, 3, 6, 7);
    }
    for (; j < d; ++j) {
      for (int64_t k = 0; k < 4; ++k) to[j * to_row + q + k] = rows[k * d + j];
    }
  }
  for (; q < n; ++q) {
    for (int64_t j = 0; j < d; ++j) to[j * to_row + q] = x[q * d + j];
  }
}

int64_t PairsBefore(int64_t p) { return p * (p - 1) / 2; }

// Computes the products of kRows vectors, from p on, each with all vectors
// before it. `pairs` has the products of the whole example. Values of the other
// vectors are read once for all kRows vectors.
template <int64_t kRows, typename L>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void MultiplyWithOthers(
    const float* vectors, int64_t p, int64_t d, const float* transposed,
    int64_t padded, float* pairs) {
  const float* const own = vectors + p * d;
  for (int64_t first = 0; first < p + kRows - 1; first += L::kCount) {
    typename L::Vector sums[kRows] = {};
    for (int64_t j = 0; j < d; ++j) {
      const typename L::Vector others = At<L>(transposed + j * padded + first);
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) sums[r] += own[r * d + j] * others;
    }
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) {
      float* const to = pairs + PairsBefore(p + r) + first;
      const int64_t count = p + r - first;
      if (count >= L::kCount) {
        At<L>(to) = sums[r];
        continue;
      }
      for (int64_t q = 0; q < count; ++q) to[q] = sums[r][q];
    }
  }
}

// Computes the gradients of kRows vectors, from p on; dx is the gradient of the
// first of them.
template <int64_t kRows, typename L>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void SumOthers(const float* vectors,
                                                   int64_t p, int64_t n,
                                                   int64_t d, const float* dy,
                                                   float* dx) {
  VisitColumns<L, 1>(
      d, [&](auto range, int64_t first) ABSL_ATTRIBUTE_ALWAYS_INLINE {
        using V = typename decltype(range)::Lanes;
        typename V::Vector sums[kRows] = {};
        const float* other = vectors + first;
        for (int64_t q = 0; q < p; ++q, other += d) {
          const typename V::Vector x = At<V>(other);
#pragma GCC unroll 4
          for (int64_t r = 0; r < kRows; ++r) {
            sums[r] += dy[PairsBefore(p + r) + q] * x;
          }
        }
        for (int64_t q = p; q < p + kRows; ++q, other += d) {
          const typename V::Vector x = At<V>(other);
#pragma GCC unroll 4
          for (int64_t r = 0; r < kRows; ++r) {
            const int64_t own = p + r;
            // Skipped rather than multiplied by 0, since x may not be finite.
            if (own == q) continue;
            sums[r] +=
                dy[own > q ? PairsBefore(own) + q : PairsBefore(q) + own] * x;
          }
        }
        const float* slopes = dy + PairsBefore(p + kRows) + p;
        for (int64_t q = p + kRows; q < n; slopes += q, ++q, other += d) {
          const typename V::Vector x = At<V>(other);
#pragma GCC unroll 4
          for (int64_t r = 0; r < kRows; ++r) sums[r] += slopes[r] * x;
        }
#pragma GCC unroll 4
        for (int64_t r = 0; r < kRows; ++r) {
          At<V>(dx + r * d + first) = sums[r];
        }
      });
}

// The number of vectors that are multiplied by the others at a time. It is
// above 1 because each addition to a sum waits for the one before it, while the
// CPU could start two multiplications at once.
constexpr int64_t kRowsAtOnce = 4;

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
    SumBagsLoop<true>(options_.simd, bags, rows, y);
  } else {
    SumBagsLoop<false>(options_.simd, bags, rows, y);
  }
}

void CpuBackend::SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                                 Matrix drows) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  ForKindOf(bags, [&](auto bag_of, auto is_weighted) {
    SumBagsGradientLoop<is_weighted>(options_.simd, bags, dy, drows, bag_of);
  });
}

void CpuBackend::PairwiseBags(const DeviceBags& bags, ConstMatrix rows,
                              Matrix sums, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (bags.weights != nullptr) {
    PairwiseBagsLoop<true>(options_.simd, bags, rows, sums, y);
  } else {
    PairwiseBagsLoop<false>(options_.simd, bags, rows, sums, y);
  }
}

void CpuBackend::AddPairwiseBagsGradient(const DeviceBags& bags,
                                         ConstMatrix rows, ConstMatrix sums,
                                         ConstMatrix dy, Matrix drows) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  ForKindOf(bags, [&](auto bag_of, auto is_weighted) {
    AddPairwiseBagsGradientLoop<is_weighted>(options_.simd, bags, rows, sums,
                                             dy, drows, bag_of);
  });
}

// An example's vectors are transposed first. Then one CPU vector holds the
// products of one vector with as many others as it has lanes.
void CpuBackend::DotPairs(ConstMatrix x, int64_t n, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (y.size() == 0) return;
  const int64_t d = x.cols / n;
  const int64_t padded = (n + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
  error_.Update(Reserve(d * padded, &transposed_));
  if (!error_.ok()) return;
  float* const transposed = transposed_.View(d, padded).data;
  // Products with the padding after the last vector are computed, too, and
  // dropped.
  std::fill_n(transposed, d * padded, 0.0f);
  RunInVectors(options_.simd, [=](auto lanes) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    using L = decltype(lanes);
    for (int64_t i = 0; i < x.rows; ++i) {
      const float* const vectors = x.data + i * x.cols;
      float* const pairs = y.data + i * y.cols;
      Transpose(vectors, n, d, padded, transposed);
      int64_t p = 1;
      for (; p + kRowsAtOnce <= n; p += kRowsAtOnce) {
        MultiplyWithOthers<kRowsAtOnce, L>(vectors, p, d, transposed, padded,
                                           pairs);
      }
      for (; p < n; ++p) {
        MultiplyWithOthers<1, L>(vectors, p, d, transposed, padded, pairs);
      }
    }
  });
}

void CpuBackend::DotPairsGradient(ConstMatrix x, int64_t n, ConstMatrix dy,
                                  Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (x.size() == 0) return;
  const int64_t d = x.cols / n;
  RunInVectors(options_.simd, [=](auto lanes) ABSL_ATTRIBUTE_ALWAYS_INLINE {
    using L = decltype(lanes);
    for (int64_t i = 0; i < x.rows; ++i) {
      const float* const vectors = x.data + i * x.cols;
      const float* const slopes = dy.data + i * dy.cols;
      float* const to = dx.data + i * x.cols;
      int64_t p = 0;
      for (; p + kRowsAtOnce <= n; p += kRowsAtOnce) {
        SumOthers<kRowsAtOnce, L>(vectors, p, n, d, slopes, to + p * d);
      }
      for (; p < n; ++p) {
        SumOthers<1, L>(vectors, p, n, d, slopes, to + p * d);
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
