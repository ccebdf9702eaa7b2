// SPDX-License-Identifier: Apache-2.0

// The values of matrices in tests.
#ifndef HOLDFAST_WORKER_BACKEND_TESTING_TEST_VALUES_H_
#define HOLDFAST_WORKER_BACKEND_TESTING_TEST_VALUES_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "common/base/random.h"

namespace holdfast {

// Values in [-scale, scale), the same in every run.
inline std::vector<float> RandomValues(int64_t size, uint32_t key,
                                       float scale = 1) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    const uint32_t bits = Philox4x32({static_cast<uint32_t>(i)}, {key})[0];
    values[i] = scale * (static_cast<float>(bits >> 8) / (1 << 23) - 1);
  }
  return values;
}

// Unlike ==, also compares NaNs.
inline bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_TESTING_TEST_VALUES_H_
