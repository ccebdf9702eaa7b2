// SPDX-License-Identifier: Apache-2.0

// Loops that are written with vectors of the CPU's length.
#ifndef HOLDFAST_WORKER_BACKEND_CPU_VECTORS_H_
#define HOLDFAST_WORKER_BACKEND_CPU_VECTORS_H_

#include <cstdint>

#include "absl/base/attributes.h"
#include "common/base/simd.h"

namespace holdfast {

// A vector of kSize values.
template <int64_t kSize>
struct Lanes {
  static constexpr int64_t kCount = kSize;
  typedef float Vector __attribute__((vector_size(kSize * sizeof(float))));
  // The same values in memory, at any address.
  typedef float Memory __attribute__((vector_size(kSize * sizeof(float)),
                                      aligned(alignof(float)), may_alias));
};

template <>
struct Lanes<1> {
  static constexpr int64_t kCount = 1;
  using Vector = float;
  using Memory = float;
};

// The number of lanes of the longest vectors.
inline constexpr int64_t kMaxLanes = 16;

template <typename L>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline const typename L::Memory& At(
    const float* values) {
  return *reinterpret_cast<const typename L::Memory*>(values);
}

template <typename L>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline typename L::Memory& At(float* values) {
  return *reinterpret_cast<typename L::Memory*>(values);
}

// Calls loop(Lanes<n>()), compiled for `simd`, with vectors of its length.
// `loop` is as in RunSimd.
template <typename Loop>
void RunInVectors(Simd simd, Loop loop) {
  switch (simd) {
    case Simd::kAvx512:
      return RunSimd(simd,
                     [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE { loop(Lanes<16>()); });
    case Simd::kAvx2:
      return RunSimd(simd,
                     [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE { loop(Lanes<8>()); });
    case Simd::kPlain:
      return loop(Lanes<4>());
  }
}

// kCount adjacent vectors.
template <typename L, int64_t kCount>
struct Range {
  using Lanes = L;
  static constexpr int64_t kVectors = kCount;
  static constexpr int64_t kColumns = kCount * L::kCount;
};

// Calls visit(Range(), first) for ranges of columns that together are `cols`
// columns: as many as possible of the longest range, which has kMost vectors,
// and then shorter ones.
template <typename L, int64_t kMost = 4, typename Visitor>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void VisitColumns(int64_t cols,
                                                      const Visitor& visit) {
  int64_t j = 0;
  if constexpr (kMost > 1) {
    constexpr int64_t kColumns = kMost * L::kCount;
    for (; j + kColumns <= cols; j += kColumns) visit(Range<L, kMost>(), j);
  }
  for (; j + L::kCount <= cols; j += L::kCount) visit(Range<L, 1>(), j);
  if constexpr (L::kCount > 8) {
    for (; j + 8 <= cols; j += 8) visit(Range<Lanes<8>, 1>(), j);
  }
  if constexpr (L::kCount > 4) {
    for (; j + 4 <= cols; j += 4) visit(Range<Lanes<4>, 1>(), j);
  }
  for (; j < cols; ++j) visit(Range<Lanes<1>, 1>(), j);
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_VECTORS_H_
