// SPDX-License-Identifier: Apache-2.0

// Loops that are compiled for several kinds of CPU.
#ifndef HOLDFAST_COMMON_BASE_SIMD_H_
#define HOLDFAST_COMMON_BASE_SIMD_H_

#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/types/span.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace holdfast {

// The vector instructions that the compiler may use: kPlain means those that
// every CPU of this architecture has.
enum class Simd { kPlain, kAvx2, kAvx512 };

// The kinds that this CPU supports: kPlain first, the widest last.
absl::Span<const Simd> SupportedSimd();
// The widest kind that this CPU supports.
Simd BestSimd();

const char* SimdName(Simd simd);

namespace simd_internal {

#if defined(__x86_64__)
template <typename Loop>
__attribute__((target("avx2"))) void RunAvx2(Loop loop) {
  loop();
}

// By default, GCC prefers vectors of half of AVX-512's width.
template <typename Loop>
#if defined(__clang__)
__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq")))
#else
__attribute__((
    target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")))
#endif
void RunAvx512(Loop loop) {
  loop();
}
#endif

}  // namespace simd_internal

// Calls `loop`, compiled for `simd`, which must be among SupportedSimd().
//
// `loop` must be a lambda that captures by value, so that the compiler sees
// that the loop's writes do not change its captures. The lambda and the
// functions that it calls must be ABSL_ATTRIBUTE_ALWAYS_INLINE: functions that
// are not inlined keep their code for every CPU.
template <typename Loop>
void RunSimd(Simd simd, Loop loop) {
  switch (simd) {
#if defined(__x86_64__)
    case Simd::kAvx512:
      return simd_internal::RunAvx512(std::move(loop));
    case Simd::kAvx2:
      return simd_internal::RunAvx2(std::move(loop));
#endif
    default:
      return loop();
  }
}

// The number of elements that StreamOut copies: several cache lines.
inline constexpr size_t kStreamElements = 128;

// Copies `from` [kStreamElements], aligned to 16 bytes, to `to`, aligned to a
// cache line, bypassing the caches: the destination is not fetched first, and
// no cached data are evicted. Another thread may rely on the copy only after
// this thread has called FinishStreams.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void StreamOut(const float* from,
                                                   float* to) {
#if defined(__x86_64__)
  for (size_t i = 0; i < kStreamElements; i += 4) {
    _mm_stream_ps(to + i, _mm_load_ps(from + i));
  }
#else
  std::memcpy(to, from, kStreamElements * sizeof(float));
#endif
}

inline void FinishStreams() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_SIMD_H_
