// SPDX-License-Identifier: Apache-2.0

// Rounds float32 values to the 16-bit formats, to the nearest value, ties to
// even, and widens them again. Compiled for the CPU and, by nvcc, for the GPU;
// both give the same bits.
#ifndef HOLDFAST_WORKER_BACKEND_HALVES_H_
#define HOLDFAST_WORKER_BACKEND_HALVES_H_

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define HOLDFAST_ON_BOTH __host__ __device__
#else
#define HOLDFAST_ON_BOTH
#endif

namespace holdfast {
namespace halves {

inline constexpr uint32_t kSign = 0x80000000;
inline constexpr uint32_t kInfinity = 0x7f800000;

HOLDFAST_ON_BOTH inline uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

HOLDFAST_ON_BOTH inline float FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// Rounds to IEEE 754 binary16. The greatest finite value is 65504; magnitudes
// from 65520 on become infinity. NaN stays NaN.
HOLDFAST_ON_BOTH inline float RoundToFloat16(float value) {
  constexpr uint32_t kGreatest = 0x477fe000;     // 65504
  constexpr uint32_t kLeastNormal = 0x38800000;  // 2^-14
  const uint32_t magnitude = BitsOf(value) & ~kSign;
  uint32_t rounded =
      (magnitude + 0xfff + ((magnitude >> 13) & 1)) & ~uint32_t{0x1fff};
  rounded = rounded > kGreatest ? kInfinity : rounded;
  // From 0.5 to 1 the last bit of a float is 2^-24, as it is in a subnormal
  // float16.
  const uint32_t subnormal = BitsOf((FromBits(magnitude) + 0.5f) - 0.5f);
  rounded = magnitude < kLeastNormal ? subnormal : rounded;
  rounded = magnitude > kInfinity ? magnitude : rounded;
  return FromBits(rounded | (BitsOf(value) & kSign));
}

// Rounds to bfloat16, the upper half of a float32. NaN stays NaN.
HOLDFAST_ON_BOTH inline float RoundToBfloat16(float value) {
  constexpr uint32_t kQuiet = 0x00400000;
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool is_nan = (bits & ~kSign) > kInfinity;
  return FromBits((is_nan ? bits | kQuiet : rounded) & 0xffff0000);
}

// ToFloat16 and ToBfloat16 return the bits of `value`, rounded as above, except
// that every NaN becomes kNan, as it does in the GPU's instructions.
inline constexpr uint16_t kNan = 0x7fff;

HOLDFAST_ON_BOTH inline uint16_t ToFloat16(float value) {
#ifdef __CUDA_ARCH__
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  const uint32_t bits = BitsOf(RoundToFloat16(value));
  const uint32_t magnitude = bits & ~kSign;
  uint32_t half = (magnitude - ((127u - 15u) << 23)) >> 13;
  if (magnitude < 0x38800000) {
    half = static_cast<uint32_t>(FromBits(magnitude) * 0x1p24f);
  }
  if (magnitude == kInfinity) half = 0x7c00;
  if (magnitude > kInfinity) return kNan;
  return static_cast<uint16_t>((bits & kSign) >> 16 | half);
#endif
}

HOLDFAST_ON_BOTH inline uint16_t ToBfloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  if (value != value) return kNan;
  return static_cast<uint16_t>(BitsOf(RoundToBfloat16(value)) >> 16);
#endif
}

// FromFloat16 and FromBfloat16 return the value of a half, which is exact. NaN
// stays NaN.
HOLDFAST_ON_BOTH inline float FromFloat16(uint16_t half) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  const uint32_t magnitude = half & 0x7fff;
  // A product by 2^112 turns the exponent's bias of 15 into 127, and a
  // subnormal number into a normal one.
  const float value = FromBits(magnitude << 13) * 0x1p112f;
  const uint32_t bits =
      magnitude < 0x7c00 ? BitsOf(value) : magnitude << 13 | kInfinity;
  return FromBits(bits | static_cast<uint32_t>(half & 0x8000) << 16);
#endif
}

HOLDFAST_ON_BOTH inline float FromBfloat16(uint16_t half) {
  return FromBits(static_cast<uint32_t>(half) << 16);
}

}  // namespace halves
}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_HALVES_H_
