// SPDX-License-Identifier: Apache-2.0

// Compares the CPU backend's poolings with the formulas of backend.h in double.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/testing/test_matrices.h"
#include "worker/backend/cpu/testing/test_windows.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNan;

TEST(PoolingTest, AgreesWithFloat64) {
  auto backend = MakeBackend();
  // Includes more channels than a gradient processes at a time.
  for (const Window& w : Windows({1, 3, 70})) {
    for (const int64_t images : {0, 1, 3}) {
      SCOPED_TRACE(absl::StrCat(Describe(w), ", ", images, " images"));
      const int64_t outputs = w.output_places() * w.channels;
      const Values x = Values::Random(images, w.input_size(), 1);
      const Values dy = Values::Random(images, outputs, 3);
      Sums max(images * outputs), mean(images * outputs);
      Sums dmax(x.values.size()), dmean(x.values.size());
      for (int64_t i = 0; i < images; ++i) {
        for (int64_t o = 0; o < outputs; ++o) {
          const int64_t place = o / w.channels;
          const double d = dy.values[i * outputs + o];
          std::vector<int64_t> covered;
          VisitCovered(w, place / w.output_width, place % w.output_width,
                       [&](int64_t, int64_t in_image) {
                         covered.push_back(i * w.input_size() +
                                           in_image * w.channels +
                                           o % w.channels);
                       });
          int64_t greatest = covered[0];
          for (const int64_t at : covered) {
            if (x.values[at] > x.values[greatest]) greatest = at;
            mean.Add(i * outputs + o, x.values[at] / double(covered.size()));
            dmean.Add(at, d / double(covered.size()));
          }
          max.Add(i * outputs + o, x.values[greatest]);
          dmax.Add(greatest, d);
        }
      }
      Values found = Values::Unset(images, outputs);
      Values found_dx = Values::Unset(images, w.input_size());
      backend->MaxPool(w, x, found);
      ExpectNear(found, max, 0);
      backend->MaxPoolGradient(w, x, found, dy, found_dx);
      ExpectNear(found_dx, dmax);
      found = Values::Unset(images, outputs);
      found_dx = Values::Unset(images, w.input_size());
      backend->AveragePool(w, x, found);
      ExpectNear(found, mean);
      backend->AveragePoolGradient(w, dy, found_dx);
      ExpectNear(found_dx, dmean);
    }
  }
}

// Two windows, side by side, over two channels.
TEST(PoolingTest, OfEqualsTheFirstGetsTheGradient) {
  auto backend = MakeBackend();
  const Window window = MakeWindow(1, 4, 2, 1, 2, 1, 2, false);
  const Values x(1, 8, {5, -0.0f, 5, 0, 1, 7, 2, 7});
  const Values dy(1, 4, {10, 20, 30, 40});
  Values y = Values::Unset(1, 4);
  backend->MaxPool(window, x, y);
  EXPECT_THAT(y.values, ElementsAre(5, 0, 2, 7));
  Values dx = Values::Unset(1, 8);
  backend->MaxPoolGradient(window, x, y, dy, dx);
  EXPECT_THAT(dx.values, ElementsAre(10, 20, 0, 0, 0, 40, 30, 0));
}

TEST(PoolingTest, WhatIsNotANumberIsTheGreatest) {
  auto backend = MakeBackend();
  const Window window = MakeWindow(1, 3, 1, 1, 3, 1, 1, false);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& values :
       {std::vector<float>{kNan, 1, kInfinity},
        std::vector<float>{kInfinity, kNan, 2},
        std::vector<float>{0, kNan, kNan}}) {
    const Values x(1, 3, values);
    Values y = Values::Unset(1, 1);
    y.values = {0};
    backend->MaxPool(window, x, y);
    EXPECT_THAT(y.values, ElementsAre(IsNan()));
    Values dx = Values::Unset(1, 3);
    backend->MaxPoolGradient(window, x, y, Values(1, 1, {3}), dx);
    const size_t first = std::isnan(values[0]) ? 0 : 1;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(dx.values[i], i == first ? 3 : 0) << i;
    }
  }
}

}  // namespace
}  // namespace holdfast
