// SPDX-License-Identifier: Apache-2.0

// Matrices for tests of the CPU backend, and how exact results must be.
#ifndef HOLDFAST_WORKER_BACKEND_CPU_TESTING_TEST_MATRICES_H_
#define HOLDFAST_WORKER_BACKEND_CPU_TESTING_TEST_MATRICES_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/halves.h"
#include "worker/backend/testing/test_values.h"

namespace holdfast {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline std::unique_ptr<CpuBackend> MakeBackend() {
  return *CpuBackend::Create({});
}

// A matrix with its memory.
struct Values {
  Values(int64_t rows, int64_t cols, std::vector<float> values)
      : rows(rows), cols(cols), values(std::move(values)) {}
  // For results, filled with NaN.
  static Values Unset(int64_t rows, int64_t cols) {
    return {rows, cols, std::vector<float>(rows * cols, kNan)};
  }
  static Values Random(int64_t rows, int64_t cols, uint32_t key) {
    return {rows, cols, RandomValues(rows * cols, key)};
  }
  operator Matrix() { return {values.data(), rows, cols}; }
  operator ConstMatrix() const { return {values.data(), rows, cols}; }

  int64_t rows;
  int64_t cols;
  std::vector<float> values;
};

// Sums in double, and the sums of the terms' magnitudes.
struct Sums {
  explicit Sums(int64_t size) : values(size), magnitudes(size) {}
  void Add(int64_t i, double term) {
    values[i] += term;
    magnitudes[i] += std::abs(term);
  }

  std::vector<double> values;
  std::vector<double> magnitudes;
};

// float32 has 24 bits: a sum in any order has a relative error of at most 6e-8
// for each addition that a term takes part in; products are summed in blocks.
inline void ExpectNear(const Values& found, const Sums& expected,
                       double tolerance = 2e-6) {
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (size_t i = 0; i < found.values.size(); ++i) {
    // Written so that a NaN is an error too.
    if (!(std::abs(found.values[i] - expected.values[i]) <=
          tolerance * expected.magnitudes[i])) {
      ADD_FAILURE() << "value " << i << " is " << found.values[i] << ", not "
                    << expected.values[i];
      return;
    }
  }
}

// Rounds all values to bfloat16.
inline Values Rounded(Values values) {
  for (float& value : values.values) value = halves::RoundToBfloat16(value);
  return values;
}

// A result of which only the rounded values are wanted.
inline Matrix Alone(Values& values) {
  Matrix matrix = values;
  matrix.rounded_alone = true;
  return matrix;
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_TESTING_TEST_MATRICES_H_
