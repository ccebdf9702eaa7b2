// SPDX-License-Identifier: Apache-2.0

// Operations on single elements, and their sums, on the device and the CPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensor/norm.h"
#include "tests/gpu/case_count.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/parity.h"
#include "tests/gpu/shapes.h"

namespace holdfast {
namespace {

class ElementsParityTest : public DeviceComparison {};

TEST_F(ElementsParityTest, BiasAndSums) {
  const auto add_bias = [&](Shape shape) {
    const auto [m, n] = shape;
    Compare(Name("AddBias", shape),
            {Values::Random(1, n, 1), Values::Random(m, n, 2)}, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->AddBias(x[0], x[1]);
            }));
  };
  // Each thread processes four columns of several rows.
  if (!DeviceIsSlow()) add_bias({2051, 1028});
  for (const Shape shape : ShapesWithFours()) {
    const auto [m, n] = shape;
    add_bias(shape);
    Compare(Name("SumRows", shape),
            {Values::Random(m, n, 1), Values::Unset(1, n)}, kSum,
            Void([](Backend* backend, const Matrices& x) {
              backend->SumRows(x[0], x[1]);
            }));
    Compare(
        Name("Add", shape),
        {Values::Random(m, n, 1), Values::Random(m, n, 2), Values::Unset(m, n)},
        kExact, Void([](Backend* backend, const Matrices& x) {
          backend->Add(x[0], x[1], x[2]);
          backend->Add(x[0], x[2], x[0]);
        }));
    Compare(Name("Scale and AddScaled", shape),
            {Values::Random(m, n, 1), Values::Random(m, n, 2)}, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->AddScaled(0.3f, x[0], x[1]);
              backend->Scale(0.7f, x[1], x[0]);
              backend->Scale(-0.1f, x[0], x[0]);
            }));
    Compare(Name("Copy", shape), {Values::Random(m, n, 1), Values::Unset(m, n)},
            kExact, Void([](Backend* backend, const Matrices& x) {
              backend->Copy(x[0], x[1]);
            }));
  }
}

TEST_F(ElementsParityTest, Activations) {
  for (const Shape shape : ShapesWithFours()) {
    const auto [m, n] = shape;
    Values x = Values::Random(m, n, 1);
    for (float& value : x.values) value *= 8;
    if (x.values.size() > 4) {
      x.values[1] = kNan;
      x.values[2] = std::numeric_limits<float>::infinity();
      x.values[3] = -std::numeric_limits<float>::infinity();
      x.values[4] = -200;
    }
    const std::vector<Values> two = {x, Values::Unset(m, n)};
    Compare(Name("Relu", shape), two, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->Relu(x[0], x[1]);
              backend->Relu(x[0], x[0]);
            }));
    Compare(Name("Tanh", shape), two, kRounding,
            Void([](Backend* backend, const Matrices& x) {
              backend->Tanh(x[0], x[1]);
              backend->Tanh(x[0], x[0]);
            }));
    Compare(Name("Sigmoid", shape), two, kRounding,
            Void([](Backend* backend, const Matrices& x) {
              backend->Sigmoid(x[0], x[1]);
              backend->Sigmoid(x[0], x[0]);
            }));
    const std::vector<Values> three = {
        Values::Random(m, n, 1), Values::Random(m, n, 2), Values::Unset(m, n)};
    Compare(Name("ReluGradient", shape), three, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->ReluGradient(x[0], x[1], x[2]);
              backend->ReluGradient(x[0], x[1], x[1]);
            }));
    Compare(Name("TanhGradient", shape), three, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->TanhGradient(x[0], x[1], x[2]);
              backend->TanhGradient(x[0], x[1], x[1]);
            }));
    Compare(Name("SigmoidGradient", shape), three, kExact,
            Void([](Backend* backend, const Matrices& x) {
              backend->SigmoidGradient(x[0], x[1], x[2]);
              backend->SigmoidGradient(x[0], x[1], x[1]);
            }));
  }
}

TEST_F(ElementsParityTest, Dropout) {
  for (const Shape shape : ShapesWithFours()) {
    const auto [m, n] = shape;
    std::vector<int64_t> positions(m);
    for (int64_t i = 0; i < m; ++i) positions[i] = (i << 33) + 5 * i;
    for (const float rate : {0.0f, 0.1f, 0.5f, 0.999f}) {
      Compare(Name("Dropout", shape),
              {Values::Random(m, n, 1), Values::Unset(m, n)}, kExact,
              Void([&](Backend* backend, const Matrices& x) {
                backend->Dropout(x[0], positions, 0x123456789abcdef, rate,
                                 x[1]);
                backend->Dropout(x[0], positions, 7, rate, x[0]);
              }));
    }
  }
}

// In blocks of 8192 values, the last of which may be partial.
TEST_F(ElementsParityTest, SumsOfSquares) {
  std::vector<int64_t> sizes = {0, 1, 3, 4, 1000, 8191, 8192, 8193, 70'001};
  // More than one round of all blocks.
  if (!DeviceIsSlow()) sizes.push_back((int64_t{1} << 24) + 5);
  for (const int64_t size : sizes) {
    std::vector<float> values = RandomValues(size, 1);
    const auto sum_at = [&](int64_t offset) {
      constexpr float kGuard = 12345;
      std::vector<float> host(offset + size, kGuard);
      std::copy(values.begin(), values.end(), host.begin() + offset);
      const std::vector<float> guards(6, kGuard);
      DeviceBuffer staging, sums;
      const auto x = device_->Upload(host, 1, host.size(), &staging);
      const auto to = device_->Upload(guards, 1, guards.size(), &sums);
      EXPECT_TRUE(x.ok() && to.ok());
      device_->SumSquares({x->data + offset, size, 1},
                          {sums.View(1, 6).data + 2, 1, 2});
      const auto download = device_->StartDownload(sums.View(1, 6));
      EXPECT_TRUE(download.ok() && device_->Await(*download).ok());
      double sum = 0;
      std::memcpy(&sum, &download->values[2], sizeof(sum));
      for (const int i : {0, 1, 4, 5}) EXPECT_EQ(download->values[i], kGuard);
      ++g_cases;
      return sum;
    };
    SCOPED_TRACE(absl::StrCat(size, " values"));
    const double expected = SumOfSquares(values);
    const double made = sum_at(0);
    EXPECT_NEAR(made, expected, DeviceHasTheCpusBits() ? 0 : 1e-12 * expected);
    EXPECT_EQ(sum_at(1), made);
    if (size == 0) continue;
    for (const float bad : {kNan, std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      for (const int64_t place : {int64_t{0}, size - 1}) {
        const float good = std::exchange(values[place], bad);
        EXPECT_FALSE(std::isfinite(sum_at(0))) << place;
        values[place] = good;
      }
    }
    // Far above the largest float32.
    values[size / 2] = 1e30f;
    EXPECT_NEAR(sum_at(0), SumOfSquares(values), 1e47);
  }
}

}  // namespace
}  // namespace holdfast
