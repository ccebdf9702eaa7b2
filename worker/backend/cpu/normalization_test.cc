// SPDX-License-Identifier: Apache-2.0

// Compares the CPU backend's normalizations of columns and of rows with the
// formulas of backend.h in double.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/testing/test_matrices.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Values around 5, so that sums of squares that do not subtract the mean would
// show.
Values AroundFive(int64_t rows, int64_t cols) {
  Values x = Values::Random(rows, cols, 1);
  for (float& value : x.values) value += 5;
  return x;
}

constexpr float kEpsilon = 1e-3f;

struct Shape {
  int64_t rows, cols;
};
const std::vector<Shape>& Shapes() {
  static const auto& shapes = *new std::vector<Shape>{
      {1, 1}, {1, 7}, {2, 1}, {5, 3}, {64, 64}, {33, 65}, {700, 130}};
  return shapes;
}

TEST(NormalizationTest, OfColumnsAgreesWithFloat64) {
  auto backend = MakeBackend();
  for (const auto& [m, n] : Shapes()) {
    SCOPED_TRACE(absl::StrCat("[", m, ",", n, "]"));
    const Values x = AroundFive(m, n);
    const Values scale = Values::Random(1, n, 2);
    const Values offset = Values::Random(1, n, 3);
    const Values dy = Values::Random(m, n, 4);
    Sums mean(n), variance(n), y(m * n), dscale(n), doffset(n), dx(m * n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i)
        mean.Add(j, x.values[i * n + j] / double(m));
      for (int64_t i = 0; i < m; ++i) {
        const double distance = x.values[i * n + j] - mean.values[j];
        variance.Add(j, distance * distance / double(m));
      }
      // The mean is rounded.
      variance.magnitudes[j] += 1e-6;
      const double inverse = 1 / std::sqrt(variance.values[j] + kEpsilon);
      const auto h = [&, j = j, n = n](int64_t i) {
        return (x.values[i * n + j] - mean.values[j]) * inverse;
      };
      for (int64_t i = 0; i < m; ++i) {
        y.Add(i * n + j, h(i) * scale.values[j]);
        y.Add(i * n + j, offset.values[j]);
        // The rounding of two numbers around 5.
        y.magnitudes[i * n + j] += 5 * inverse;
        dscale.Add(j, dy.values[i * n + j] * h(i));
        dscale.magnitudes[j] += 5 * inverse;
        doffset.Add(j, dy.values[i * n + j]);
      }
      for (int64_t i = 0; i < m; ++i) {
        const double factor = scale.values[j] * inverse;
        dx.Add(i * n + j, factor * dy.values[i * n + j]);
        dx.Add(i * n + j, -factor * doffset.values[j] / m);
        dx.Add(i * n + j, -factor * h(i) * dscale.values[j] / m);
        dx.magnitudes[i * n + j] += 5 * inverse * inverse;
      }
    }
    Values found_mean = Values::Unset(1, n);
    Values found_variance = Values::Unset(1, n);
    backend->ColumnMoments(x, found_mean, found_variance);
    ExpectNear(found_mean, mean, 2e-7);
    ExpectNear(found_variance, variance, 1e-6);
    Values found = Values::Unset(m, n);
    const ColumnNorm norm = {found_mean, found_variance, kEpsilon, scale,
                             offset};
    backend->NormalizeColumns(x, norm, {}, false, found);
    ExpectNear(found, y);
    Values found_dscale = Values::Unset(1, n), found_doffset = found_dscale;
    Values found_dx = Values::Unset(m, n);
    backend->NormalizeColumnsGradient(x, norm, false, dy, found_dscale,
                                      found_doffset, found_dx);
    ExpectNear(found_dscale, dscale);
    ExpectNear(found_doffset, doffset);
    ExpectNear(found_dx, dx);

    // In place, and without dx.
    Values in_place = x;
    backend->NormalizeColumns(in_place, norm, {}, false, in_place);
    EXPECT_EQ(in_place.values, found.values);
    in_place = dy;
    backend->NormalizeColumnsGradient(x, norm, false, in_place, found_dscale,
                                      found_doffset, in_place);
    EXPECT_EQ(in_place.values, found_dx.values);
    Values same_dscale = Values::Unset(1, n), same_doffset = same_dscale;
    backend->NormalizeColumnsGradient(x, norm, false, dy, same_dscale,
                                      same_doffset, {nullptr, m, n});
    EXPECT_EQ(same_dscale.values, found_dscale.values);
    EXPECT_EQ(same_doffset.values, found_doffset.values);

    // With an addend and a relu: the same as Add and Relu afterwards.
    Values expected = found, ended = Values::Unset(m, n);
    backend->Add(expected, dy, expected);
    backend->NormalizeColumns(x, norm, dy, false, ended);
    EXPECT_EQ(ended.values, expected.values);
    backend->Relu(expected, expected);
    backend->NormalizeColumns(x, norm, dy, true, ended);
    EXPECT_EQ(ended.values, expected.values);
    expected = found;
    backend->Relu(expected, expected);
    backend->NormalizeColumns(x, norm, {}, true, ended);
    EXPECT_EQ(ended.values, expected.values);
    // The gradient is the same as with ReluGradient before it.
    Values passed = dy;
    backend->ReluGradient(ended, passed, passed);
    backend->NormalizeColumnsGradient(x, norm, false, passed, found_dscale,
                                      found_doffset, found_dx);
    Values ended_dx = dy;
    backend->NormalizeColumnsGradient(x, norm, true, ended_dx, same_dscale,
                                      same_doffset, ended_dx);
    EXPECT_EQ(ended_dx.values, found_dx.values);
    EXPECT_EQ(same_dscale.values, found_dscale.values);
    EXPECT_EQ(same_doffset.values, found_doffset.values);
  }
}

TEST(NormalizationTest, ResultsAreRoundedIfNothingElseIsWanted) {
  auto backend = *CpuBackend::Create(
      {.precision = Precision::kBfloat16, .activations = true});
  Values x = Values::Random(5, 3, 1), dy = Values::Random(5, 3, 2);
  const Values row(1, 3, {0.7f, 0.8f, 0.9f});
  const ColumnNorm norm = {row, row, kEpsilon, row, row};
  Values y = Values::Unset(5, 3), dx = y;
  Values dscale = Values::Unset(1, 3), doffset = dscale;
  // In place, from values that have been rounded before.
  for (Values* const values : {&x, &dy}) *values = Rounded(*values);
  backend->NormalizeColumns(x, norm, {}, true, y);
  backend->NormalizeColumnsGradient(x, norm, true, dy, dscale, doffset, dx);
  Values same_dscale = Values::Unset(1, 3), same_doffset = same_dscale;
  backend->NormalizeColumnsGradient(Alone(x), norm, true, Alone(dy),
                                    same_dscale, same_doffset, Alone(dy));
  backend->NormalizeColumns(Alone(x), norm, {}, true, Alone(x));
  EXPECT_EQ(x.values, Rounded(y).values);
  EXPECT_EQ(dy.values, Rounded(dx).values);
  EXPECT_NE(dy.values, dx.values);
  EXPECT_EQ(same_dscale.values, dscale.values);
  EXPECT_EQ(same_doffset.values, doffset.values);
}

TEST(NormalizationTest, OfRowsAgreesWithFloat64) {
  auto backend = MakeBackend();
  for (const auto& [m, n] : Shapes()) {
    SCOPED_TRACE(absl::StrCat("[", m, ",", n, "]"));
    const Values x = AroundFive(m, n);
    const Values scale = Values::Random(1, n, 2);
    const Values offset = Values::Random(1, n, 3);
    const Values dy = Values::Random(m, n, 4);
    Sums moments(2 * m), y(m * n), dscale(n), doffset(n), dx(m * n);
    for (int64_t i = 0; i < m; ++i) {
      double mean = 0, variance = 0;
      for (int64_t j = 0; j < n; ++j) mean += x.values[i * n + j] / double(n);
      for (int64_t j = 0; j < n; ++j) {
        const double distance = x.values[i * n + j] - mean;
        variance += distance * distance / double(n);
      }
      const double inverse = 1 / std::sqrt(variance + kEpsilon);
      moments.Add(2 * i, mean);
      moments.Add(2 * i + 1, inverse);
      double mean_g = 0, mean_gh = 0;
      const auto h = [&, i = i, n = n](int64_t j) {
        return (x.values[i * n + j] - mean) * inverse;
      };
      for (int64_t j = 0; j < n; ++j) {
        y.Add(i * n + j, h(j) * scale.values[j]);
        y.Add(i * n + j, offset.values[j]);
        y.magnitudes[i * n + j] += 5 * inverse;
        dscale.Add(j, dy.values[i * n + j] * h(j));
        dscale.magnitudes[j] += 5 * inverse;
        doffset.Add(j, dy.values[i * n + j]);
        const double g = dy.values[i * n + j] * scale.values[j];
        mean_g += g / n;
        mean_gh += g * h(j) / n;
      }
      for (int64_t j = 0; j < n; ++j) {
        dx.Add(i * n + j, inverse * dy.values[i * n + j] * scale.values[j]);
        dx.Add(i * n + j, -inverse * mean_g);
        dx.Add(i * n + j, -inverse * h(j) * mean_gh);
        dx.magnitudes[i * n + j] += 5 * inverse * inverse;
      }
    }
    Values found_moments = Values::Unset(m, 2);
    Values found = Values::Unset(m, n);
    backend->NormalizeRows(x, kEpsilon, scale, offset, found_moments, found);
    ExpectNear(found_moments, moments, 1e-6);
    ExpectNear(found, y);
    Values found_dscale = Values::Unset(1, n), found_doffset = found_dscale;
    Values found_dx = Values::Unset(m, n);
    backend->NormalizeRowsGradient(x, scale, found_moments, dy, found_dscale,
                                   found_doffset, found_dx);
    ExpectNear(found_dscale, dscale);
    ExpectNear(found_doffset, doffset);
    ExpectNear(found_dx, dx);

    Values in_place = dy;
    backend->NormalizeRowsGradient(x, scale, found_moments, in_place,
                                   found_dscale, found_doffset, in_place);
    EXPECT_EQ(in_place.values, found_dx.values);
    Values same_dscale = Values::Unset(1, n), same_doffset = same_dscale;
    backend->NormalizeRowsGradient(x, scale, found_moments, dy, same_dscale,
                                   same_doffset, {nullptr, m, n});
    EXPECT_EQ(same_dscale.values, found_dscale.values);
    EXPECT_EQ(same_doffset.values, found_doffset.values);
  }
}

// In float32 2^24 + 1 is 2^24: a sum in float32 would stay there.
TEST(NormalizationTest, ManyRowsCostNoAccuracy) {
  auto backend = MakeBackend();
  const int64_t m = (1 << 24) + 1000;
  const Values x(m, 1, std::vector<float>(m, 1.0f));
  Values mean = Values::Unset(1, 1), variance = Values::Unset(1, 1);
  backend->ColumnMoments(x, mean, variance);
  EXPECT_THAT(mean.values, ElementsAre(1));
  EXPECT_THAT(variance.values, ElementsAre(0));
}

TEST(NormalizationTest, WithoutRows) {
  auto backend = MakeBackend();
  const Values none(0, 3, {}), row(1, 3, {1, 1, 1});
  Values empty(0, 3, {}), moments(0, 2, {});
  const ColumnNorm norm = {row, row, kEpsilon, row, row};
  backend->NormalizeColumns(none, norm, none, true, empty);
  backend->NormalizeRows(none, kEpsilon, row, row, moments, empty);
  Values dscale = Values::Unset(1, 3), doffset = Values::Unset(1, 3);
  backend->NormalizeColumnsGradient(none, norm, true, none, dscale, doffset,
                                    empty);
  EXPECT_THAT(dscale.values, Each(0));
  EXPECT_THAT(doffset.values, Each(0));
  dscale = doffset = Values::Unset(1, 3);
  backend->NormalizeRowsGradient(none, row, moments, none, dscale, doffset,
                                 empty);
  EXPECT_THAT(dscale.values, Each(0));
  EXPECT_THAT(doffset.values, Each(0));
}

}  // namespace
}  // namespace holdfast
