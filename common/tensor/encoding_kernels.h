// The inner loops of common/tensor/encoding.h.
//
// Over n elements, with the vectors of `simd`. Encoded bytes may lie at any
// address; arrays do not overlap. The bits are the same for every `simd`: the
// loops are compiled from one source, and use nothing but operations that IEEE
// 754 rounds correctly.
//
// "With feedback" means: v = gradient + before is encoded, and after = v - what
// was encoded, or 0 where that is not a finite number.
#ifndef HOLDFAST_COMMON_TENSOR_ENCODING_KERNELS_H_
#define HOLDFAST_COMMON_TENSOR_ENCODING_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "common/base/simd.h"

namespace holdfast {

// Layouts of two bytes to an element.
enum class HalfFormat { kFloat16, kBfloat16 };

void EncodeHalves(Simd simd, HalfFormat format, const float* values, size_t n,
                  char* out);
void EncodeHalvesWithFeedback(Simd simd, HalfFormat format,
                              const float* gradient, const float* before,
                              size_t n, char* out, float* after);
void DecodeHalves(Simd simd, HalfFormat format, const char* in, size_t n,
                  float* out);

// One scale and n bytes, with feedback.
void EncodeInt8(Simd simd, const float* gradient, const float* before, size_t n,
                char* out, float* after);
// n bytes, without their scale.
void DecodeInt8(Simd simd, const char* in, size_t n, float scale, float* out);

// after = gradient + before. Writes `first` + i to `found` [n] for each element
// i whose magnitude is at least `least`, and returns how many there are.
// Magnitudes are compared by their bits, as integers: above all numbers is
// infinity, and above that is NaN.
size_t AddAndFind(Simd simd, const float* gradient, const float* before,
                  size_t n, uint32_t least, uint32_t first, float* after,
                  uint32_t* found);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_ENCODING_KERNELS_H_
