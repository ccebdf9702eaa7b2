// SPDX-License-Identifier: Apache-2.0

// Batch and layer normalization on the device and the CPU.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/gpu/parity.h"
#include "tests/gpu/shapes.h"

namespace holdfast {
namespace {

class NormalizationParityTest : public DeviceComparison {};

TEST_F(NormalizationParityTest, Normalization) {
  for (const Shape shape : ShapesWithFours()) {
    const auto [m, n] = shape;
    // Far from 0, so that an inaccurate variance shows.
    Values x = Values::Random(m, n, 1);
    for (float& value : x.values) value += 100;
    if (m > 0) {
      Compare(Name("ColumnMoments", shape),
              {x, Values::Unset(1, n), Values::Unset(1, n)}, kRounding,
              Void([](Backend* backend, const Matrices& x) {
                backend->ColumnMoments(x[0], x[1], x[2]);
              }));
    }
    // A variance that is not 0, even for one row.
    Values variance = Values::Random(1, n, 3);
    for (float& value : variance.values) value = value * value + 0.1f;
    Values mean = Values::Random(1, n, 4);
    for (float& value : mean.values) value += 100;
    const Values scale = Values::Random(1, n, 5),
                 offset = Values::Random(1, n, 6);
    Compare(Name("NormalizeColumns", shape),
            {x, mean, variance, scale, offset, Values::Random(m, n, 7),
             Values::Unset(m, n), Values::Unset(m, n), Values::Unset(m, n)},
            kSum, Void([](Backend* backend, const Matrices& x) {
              const ColumnNorm norm = {x[1], x[2], 1e-3f, x[3], x[4]};
              backend->NormalizeColumns(x[0], norm, {}, false, x[6]);
              backend->NormalizeColumns(x[0], norm, {}, true, x[7]);
              backend->NormalizeColumns(x[0], norm, x[5], true, x[8]);
              backend->NormalizeColumns(x[0], norm, x[5], false, x[0]);
            }));
    for (const bool want_dx : {true, false}) {
      Compare(Name("NormalizeColumnsGradient", shape),
              {x, mean, variance, scale, offset, Values::Random(m, n, 6),
               Values::Unset(1, n), Values::Unset(1, n), Values::Unset(m, n)},
              kSum, Void([&](Backend* backend, const Matrices& x) {
                const ColumnNorm norm = {x[1], x[2], 1e-3f, x[3], x[4]};
                const Matrix dx = want_dx ? x[8] : Matrix{};
                backend->NormalizeColumnsGradient(x[0], norm, false, x[5], x[6],
                                                  x[7], dx);
              }));
    }
    // Device and CPU may disagree on what a ReLU passes only near 0, and no
    // value gets there: the values are multiples of 1/4, and the mean is not.
    Values quarters = x, means = mean;
    for (float& value : quarters.values) value = std::round(value * 4) / 4;
    for (float& value : means.values) value = std::round(value * 4) / 4 + 0.1f;
    Compare(Name("NormalizeColumnsGradient of a relu", shape),
            {quarters, means, variance, scale, Values::Unset(1, n),
             Values::Random(m, n, 6), Values::Unset(1, n), Values::Unset(1, n)},
            kSum, Void([&](Backend* backend, const Matrices& x) {
              backend->Scale(0, x[3], x[4]);
              const ColumnNorm norm = {x[1], x[2], 1e-3f, x[3], x[4]};
              backend->NormalizeColumnsGradient(x[0], norm, true, x[5], x[6],
                                                x[7], x[5]);
            }));
    // The variance of one value is 0, and the result would be noise.
    if (n == 1) continue;
    Compare(Name("NormalizeRows", shape),
            {x, Values::Random(1, n, 5), Values::Random(1, n, 6),
             Values::Unset(m, 2), Values::Unset(m, n), Values::Random(m, n, 7),
             Values::Unset(1, n), Values::Unset(1, n), Values::Unset(m, n)},
            kSum, Void([&](Backend* backend, const Matrices& x) {
              backend->NormalizeRows(x[0], 1e-3f, x[1], x[2], x[3], x[4]);
              backend->NormalizeRowsGradient(x[0], x[1], x[3], x[5], x[6], x[7],
                                             x[8]);
              backend->NormalizeRowsGradient(x[0], x[1], x[3], x[5], x[6], x[7],
                                             x[5]);
            }));
  }
}

}  // namespace
}  // namespace holdfast
