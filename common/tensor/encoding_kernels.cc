// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/encoding_kernels.h"

#include <algorithm>
#include <cstring>

#include "absl/base/attributes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace holdfast {
namespace {

// The loops are written in a form that GCC vectorises, and inlined into
// RunSimd.

// Encoded bytes, at any address.
using Half = uint16_t __attribute__((aligned(1), may_alias));
using Byte = int8_t __attribute__((may_alias));

constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kQuiet = 0x00400000;

ABSL_ATTRIBUTE_ALWAYS_INLINE inline uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline uint32_t Magnitude(float value) {
  return Bits(value) & ~kSign;
}

// condition ? a : b, in a form that GCC compiles without a branch.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline uint32_t Select(bool condition, uint32_t a,
                                                    uint32_t b) {
  const uint32_t mask = 0 - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline float FiniteOrZero(float value) {
  const uint32_t bits = Bits(value);
  return FromBits((bits & kInfinity) == kInfinity ? 0 : bits);
}

struct Float16 {
  // 65504, the greatest finite number.
  static constexpr uint32_t kGreatest = 0x477fe000;
  // 2^-14, the smallest normal number.
  static constexpr uint32_t kLeastNormal = 0x38800000;

  // NaN becomes what VCVTPS2PH makes of it: quiet, with the upper bits of its
  // payload.
  static ABSL_ATTRIBUTE_ALWAYS_INLINE uint16_t Encode(float value) {
    const uint32_t sign = (Bits(value) & kSign) >> 16;
    const uint32_t all = Magnitude(value);
    const uint32_t magnitude =
        Select(all > kInfinity, all, std::min(all, kGreatest));
    // Changes the exponent's bias from 127 to 15; ties are rounded to even.
    const uint32_t normal =
        (magnitude - ((127u - 15u) << 23) + 0xfff + ((magnitude >> 13) & 1)) >>
        13;
    // Near 0.5, the last bit of a float is 2^-24, as in a subnormal float16.
    const uint32_t subnormal = Bits(FromBits(magnitude) + 0.5f) - Bits(0.5f);
    const uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    const uint32_t number = Select(magnitude < kLeastNormal, subnormal, normal);
    return static_cast<uint16_t>(sign |
                                 Select(magnitude > kInfinity, nan, number));
  }

  static ABSL_ATTRIBUTE_ALWAYS_INLINE float Decode(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7fffu;
    const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
    const uint32_t subnormal =
        Bits(static_cast<float>(static_cast<int32_t>(magnitude)) *
             FromBits((127u - 24u) << 23));
    const uint32_t special =
        kInfinity | (magnitude << 13) | Select(magnitude > 0x7c00, kQuiet, 0);
    const uint32_t number = Select(magnitude < 0x400, subnormal, normal);
    return FromBits(sign | Select(magnitude >= 0x7c00, special, number));
  }
};

struct Bfloat16 {
  static ABSL_ATTRIBUTE_ALWAYS_INLINE uint16_t Encode(float value) {
    const uint32_t bits = Bits(value);
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const uint32_t nan = bits | kQuiet;
    return static_cast<uint16_t>(
        ((bits & ~kSign) > kInfinity ? nan : rounded) >> 16);
  }

  static ABSL_ATTRIBUTE_ALWAYS_INLINE float Decode(uint16_t half) {
    return FromBits(uint32_t{half} << 16);
  }
};

template <typename Format>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void EncodeLoop(
    const float* __restrict values, size_t n, char* __restrict out) {
  Half* const halves = reinterpret_cast<Half*>(out);
  for (size_t i = 0; i < n; ++i) halves[i] = Format::Encode(values[i]);
}

template <typename Format>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void EncodeWithFeedbackLoop(
    const float* __restrict gradient, const float* __restrict before, size_t n,
    char* __restrict out, float* __restrict after) {
  Half* const halves = reinterpret_cast<Half*>(out);
  for (size_t i = 0; i < n; ++i) {
    const float value = gradient[i] + before[i];
    const uint16_t half = Format::Encode(value);
    halves[i] = half;
    after[i] = FiniteOrZero(value - Format::Decode(half));
  }
}

template <typename Format>
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void DecodeLoop(const char* __restrict in,
                                                    size_t n,
                                                    float* __restrict out) {
  const Half* const halves = reinterpret_cast<const Half*>(in);
  for (size_t i = 0; i < n; ++i) out[i] = Format::Decode(halves[i]);
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline void EncodeInt8Loop(
    const float* __restrict gradient, const float* __restrict before, size_t n,
    char* __restrict out, float* __restrict after) {
  constexpr float kGreatest = 127;
  // If the maximum is below this, all elements become 0: the factor must be
  // finite, and the scale normal.
  constexpr float kLeast = 1e-30f;
  // Adding this to a number below 2^22 rounds the number to an integer (ties to
  // even), which is then in the last bits.
  constexpr float kRound = 1.5f * (1 << 23);
  uint32_t greatest = 0;
  for (size_t i = 0; i < n; ++i) {
    after[i] = gradient[i] + before[i];
    greatest = std::max(greatest, Magnitude(after[i]));
  }
  Byte* const bytes = reinterpret_cast<Byte*>(out + sizeof(float));
  if (greatest >= kInfinity) {
    const uint32_t nan = kInfinity | kQuiet;
    std::memcpy(out, &nan, sizeof(nan));
    std::memset(bytes, 0, n);
    std::memset(after, 0, n * sizeof(float));
    return;
  }
  float scale = 0;
  float factor = 0;
  if (FromBits(greatest) >= kLeast) {
    scale = FromBits(greatest) / kGreatest;
    factor = kGreatest / FromBits(greatest);
  }
  std::memcpy(out, &scale, sizeof(scale));
  for (size_t i = 0; i < n; ++i) {
    const float rounded = after[i] * factor + kRound;
    bytes[i] = static_cast<int8_t>(static_cast<uint8_t>(Bits(rounded)));
    after[i] -= (rounded - kRound) * scale;
  }
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline void DecodeInt8Loop(
    const char* __restrict in, size_t n, float scale, float* __restrict out) {
  const Byte* const bytes = reinterpret_cast<const Byte*>(in);
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(bytes[i]) * scale;
  }
}

// Appends first + i for each element i of `n` whose magnitude is at least
// `least`.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline uint32_t* Append(const float* values,
                                                     size_t n, uint32_t least,
                                                     uint32_t first,
                                                     uint32_t* found) {
  for (size_t i = 0; i < n; ++i) {
    *found = first + static_cast<uint32_t>(i);
    found += Magnitude(values[i]) >= least;
  }
  return found;
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline uint32_t* AddAndFindLoop(
    const float* __restrict gradient, const float* __restrict before, size_t n,
    uint32_t least, uint32_t first, float* __restrict after,
    uint32_t* __restrict found) {
  // Most blocks contain no such element, which one comparison shows.
  constexpr size_t kBlock = 16;
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    uint32_t greatest = 0;
    for (size_t j = i; j < i + kBlock; ++j) {
      after[j] = gradient[j] + before[j];
      greatest = std::max(greatest, Magnitude(after[j]));
    }
    if (greatest >= least) {
      found = Append(after + i, kBlock, least, first + i, found);
    }
  }
  for (size_t j = i; j < n; ++j) after[j] = gradient[j] + before[j];
  return Append(after + i, n - i, least, first + i, found);
}

#if defined(__x86_64__)
#define HOLDFAST_F16C __attribute__((target("avx2,f16c")))

// Float16 by the CPU's own conversion instructions, eight at a time; they round
// like the loops above. The functions return the number of elements that they
// have converted; the loops convert the rest.
constexpr size_t kLanes = 8;

bool HasF16c(Simd simd) {
  static const bool has = __builtin_cpu_supports("f16c");
  return has && simd != Simd::kPlain;
}

HOLDFAST_F16C inline __m128i ToFloat16(__m256 values) {
  const __m256 greatest = _mm256_set1_ps(65504);
  const __m256 least = _mm256_set1_ps(-65504);
  // This order of operands passes NaN through.
  const __m256 saturated =
      _mm256_min_ps(greatest, _mm256_max_ps(least, values));
  return _mm256_cvtps_ph(saturated, _MM_FROUND_TO_NEAREST_INT);
}

HOLDFAST_F16C size_t EncodeFloat16(const float* values, size_t n, char* out) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     ToFloat16(_mm256_loadu_ps(values + i)));
  }
  return i;
}

HOLDFAST_F16C size_t EncodeFloat16WithFeedback(const float* gradient,
                                               const float* before, size_t n,
                                               char* out, float* after) {
  const __m256i infinity = _mm256_set1_epi32(kInfinity);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 values = _mm256_add_ps(_mm256_loadu_ps(gradient + i),
                                        _mm256_loadu_ps(before + i));
    const __m128i halves = ToFloat16(values);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), halves);
    const __m256i rest =
        _mm256_castps_si256(_mm256_sub_ps(values, _mm256_cvtph_ps(halves)));
    const __m256i not_finite =
        _mm256_cmpeq_epi32(_mm256_and_si256(rest, infinity), infinity);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(after + i),
                        _mm256_andnot_si256(not_finite, rest));
  }
  return i;
}

HOLDFAST_F16C size_t DecodeFloat16(const char* in, size_t n, float* out) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m128i halves =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
  }
  return i;
}
#else
bool HasF16c(Simd) { return false; }
size_t EncodeFloat16(const float*, size_t, char*) { return 0; }
size_t EncodeFloat16WithFeedback(const float*, const float*, size_t, char*,
                                 float*) {
  return 0;
}
size_t DecodeFloat16(const char*, size_t, float*) { return 0; }
#endif

}  // namespace

void EncodeHalves(Simd simd, HalfFormat format, const float* values, size_t n,
                  char* out) {
  if (format == HalfFormat::kBfloat16) {
    return RunSimd(simd, [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
      EncodeLoop<Bfloat16>(values, n, out);
    });
  }
  const size_t done = HasF16c(simd) ? EncodeFloat16(values, n, out) : 0;
  RunSimd(simd, [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    EncodeLoop<Float16>(values + done, n - done, out + 2 * done);
  });
}

void EncodeHalvesWithFeedback(Simd simd, HalfFormat format,
                              const float* gradient, const float* before,
                              size_t n, char* out, float* after) {
  if (format == HalfFormat::kBfloat16) {
    return RunSimd(simd, [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
      EncodeWithFeedbackLoop<Bfloat16>(gradient, before, n, out, after);
    });
  }
  const size_t done =
      HasF16c(simd) ? EncodeFloat16WithFeedback(gradient, before, n, out, after)
                    : 0;
  RunSimd(simd, [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    EncodeWithFeedbackLoop<Float16>(gradient + done, before + done, n - done,
                                    out + 2 * done, after + done);
  });
}

void DecodeHalves(Simd simd, HalfFormat format, const char* in, size_t n,
                  float* out) {
  if (format == HalfFormat::kBfloat16) {
    return RunSimd(simd, [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
      DecodeLoop<Bfloat16>(in, n, out);
    });
  }
  const size_t done = HasF16c(simd) ? DecodeFloat16(in, n, out) : 0;
  RunSimd(simd, [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    DecodeLoop<Float16>(in + 2 * done, n - done, out + done);
  });
}

void EncodeInt8(Simd simd, const float* gradient, const float* before, size_t n,
                char* out, float* after) {
  RunSimd(simd, [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    EncodeInt8Loop(gradient, before, n, out, after);
  });
}

void DecodeInt8(Simd simd, const char* in, size_t n, float scale, float* out) {
  RunSimd(simd, [=]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    DecodeInt8Loop(in, n, scale, out);
  });
}

size_t AddAndFind(Simd simd, const float* gradient, const float* before,
                  size_t n, uint32_t least, uint32_t first, float* after,
                  uint32_t* found) {
  uint32_t* end = found;
  RunSimd(simd, [=, end = &end]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    *end = AddAndFindLoop(gradient, before, n, least, first, after, found);
  });
  return end - found;
}

}  // namespace holdfast
