// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/norm.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/base/attributes.h"
#include "common/base/simd.h"

namespace holdfast {

// std::isfinite for each element, in a form that GCC vectorises; otherwise it
// took 4 % of a worker's time.
bool AllFinite(absl::Span<const float> values) {
  uint32_t found = 0;
  RunSimd(BestSimd(), [values, out = &found]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
    constexpr uint32_t kExponent = 0x7f800000;
    uint32_t any = 0;
    for (const float value : values) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      any |= (bits & kExponent) == kExponent;
    }
    *out = any;
  });
  return found == 0;
}

double SumOfSquares(absl::Span<const float> values) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  const float* const in = values.data();
  const size_t whole = values.size() / kSums * kSums;
  for (size_t i = 0; i < whole; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) {
      const double value = in[i + j];
      sums[j] += value * value;
    }
  }
  for (size_t i = whole; i < values.size(); ++i) {
    const double value = in[i];
    sums[i - whole] += value * value;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

float ClipFactor(double norm, float limit) {
  return norm > limit ? static_cast<float>(limit / norm) : 1.0f;
}

}  // namespace holdfast
