// SPDX-License-Identifier: Apache-2.0

// Pools on the device and the CPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/gpu/images.h"
#include "tests/gpu/parity.h"

namespace holdfast {
namespace {

class PoolsParityTest : public DeviceComparison {};

TEST_F(PoolsParityTest, Pools) {
  std::vector<Images> all = AllImages();
  // As many window positions as a byte can number, and more.
  all.push_back(MakeSameImages(2, 20, 18, 4, 16, 3, 1, 1));
  all.push_back(MakeSameImages(2, 20, 18, 3, 17, 2, 1, 1));
  all.push_back(MakeSameImages(2, 20, 18, 4, 17, 2, 1, 1));
  for (const Images& images : all) {
    const Window& window = images.window;
    const int64_t m = images.m;
    const int64_t inputs = window.input_size();
    const int64_t outputs = window.output_places() * window.channels;
    Values x = Values::Random(m, inputs, 1);
    // With equal values in a window, and a NaN.
    for (float& value : x.values) value = std::round(value * 3);
    if (x.values.size() > 100) {
      x.values[50] = kNan;
      const float infinity = std::numeric_limits<float>::infinity();
      std::fill_n(x.values.begin() + 60, 40, -infinity);
    }
    Compare(Name("MaxPool", images),
            {x, Values::Unset(m, outputs), Values::Random(m, outputs, 2),
             Values::Unset(m, inputs)},
            kRounding, Void([&](Backend* backend, const Matrices& x) {
              backend->MaxPool(window, x[0], x[1]);
              backend->MaxPoolGradient(window, x[0], x[1], x[2], x[3]);
            }));
    Compare(Name("AveragePool", images),
            {Values::Random(m, inputs, 1), Values::Unset(m, outputs),
             Values::Random(m, outputs, 2), Values::Unset(m, inputs)},
            kRounding, Void([&](Backend* backend, const Matrices& x) {
              backend->AveragePool(window, x[0], x[1]);
              backend->AveragePoolGradient(window, x[2], x[3]);
            }));
  }
}

}  // namespace
}  // namespace holdfast
