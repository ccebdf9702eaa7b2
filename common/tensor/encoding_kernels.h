// SPDX-License-Identifier: Apache-2.0

// The inner loops of common/tensor/encoding.h.
//
// They process n elements with the vector instructions of `simd`. Encoded bytes
// may be at any address; arrays must not overlap. The bits are the same for
// every `simd`: the loops are compiled from one source, and use only operations
// that IEEE 754 rounds correctly.
//
// "With feedback" means that v = gradient + before is encoded, and that `after`
// receives the encoding error: v minus the decoded value, or 0 if the error is
// not finite.
#ifndef HOLDFAST_COMMON_TENSOR_ENCODING_KERNELS_H_
#define HOLDFAST_COMMON_TENSOR_ENCODING_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "common/base/simd.h"

namespace holdfast {

// Formats with two bytes per element.
enum class HalfFormat { kFloat16, kBfloat16 };

void EncodeHalves(Simd simd, HalfFormat format, const float* values, size_t n,
                  char* out);
void EncodeHalvesWithFeedback(Simd simd, HalfFormat format,
                              const float* gradient, const float* before,
                              size_t n, char* out, float* after);
void DecodeHalves(Simd simd, HalfFormat format, const char* in, size_t n,
                  float* out);

// Writes one scale and n bytes, with feedback.
void EncodeInt8(Simd simd, const float* gradient, const float* before, size_t n,
                char* out, float* after);
// Reads n bytes, without their scale.
void DecodeInt8(Simd simd, const char* in, size_t n, float scale, float* out);

// Sets `after` to gradient + before. Writes `first` + i to `found` [n] for each
// element i of `after` whose magnitude is at least `least`, and returns the
// number of these elements. A magnitude is an element's bits without the sign,
// compared as an integer: infinity is above all finite numbers, and NaN is
// above infinity.
size_t AddAndFind(Simd simd, const float* gradient, const float* before,
                  size_t n, uint32_t least, uint32_t first, float* after,
                  uint32_t* found);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_ENCODING_KERNELS_H_
