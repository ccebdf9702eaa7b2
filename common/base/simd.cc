// SPDX-License-Identifier: Apache-2.0
#include "common/base/simd.h"

#include <vector>

namespace holdfast {

absl::Span<const Simd> SupportedSimd() {
  static const auto* const supported = [] {
    auto* const all = new std::vector<Simd>{Simd::kPlain};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) all->push_back(Simd::kAvx2);
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq")) {
      all->push_back(Simd::kAvx512);
    }
#endif
    return all;
  }();
  return *supported;
}

Simd BestSimd() { return SupportedSimd().back(); }

const char* SimdName(Simd simd) {
  switch (simd) {
    case Simd::kPlain:
      return "plain";
    case Simd::kAvx2:
      return "AVX2";
    case Simd::kAvx512:
      return "AVX-512";
  }
  return "";
}

}  // namespace holdfast
