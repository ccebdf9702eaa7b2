// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/weight_quantization.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

// Channel 0: the largest is 127, so the scale is 1; 2.5 and 3.5 round to the
// even integer. Channel 1: the largest is 0.5. Channel 2 is zero.
TEST(QuantizeWeightsTest, HasAScalePerChannel) {
  const std::vector<float> weights = {-127, 0.5f, 0,      2.5f, -0.2f,
                                      0,    3.5f, 0.001f, 0};
  const QuantizedWeights quantized = QuantizeWeights(weights, 3);
  EXPECT_THAT(quantized.scales, ElementsAre(1, 0.5f / 127, 1));
  // -0.2 / (0.5 / 127) = -50.8.
  EXPECT_THAT(quantized.values, ElementsAre(-127, 127, 0, 2, -51, 0, 4, 0, 0));
}

TEST(QuantizeWeightsTest, RoundingErrsByHalfAScaleAtMost) {
  std::vector<float> weights;
  for (int i = 0; i < 1000; ++i) {
    weights.push_back(std::sin(static_cast<float>(i)) *
                      (i % 2 == 0 ? 0.01f : 30.0f));
  }
  std::vector<float> rounded = weights;
  RoundToQuantized(2, absl::MakeSpan(rounded));
  const QuantizedWeights quantized = QuantizeWeights(weights, 2);
  EXPECT_NE(rounded, weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_LE(std::abs(rounded[i] - weights[i]),
              0.501f * quantized.scales[i % 2])
        << i;
  }
  // Values that are already rounded do not change.
  std::vector<float> again = rounded;
  RoundToQuantized(2, absl::MakeSpan(again));
  EXPECT_EQ(again, rounded);
}

TEST(QuantizeWeightsTest, DenormalsDoNotDivideByZero) {
  const QuantizedWeights quantized = QuantizeWeights({1e-45f, -1e-45f}, 1);
  EXPECT_THAT(quantized.values, ElementsAre(0, 0));
  EXPECT_THAT(quantized.scales, ElementsAre(1));
}

TEST(IsQuantizableTest, MatricesAndKernelsAlone) {
  proto::Variable variable;
  variable.add_shape(3);
  EXPECT_FALSE(IsQuantizable(variable));
  variable.add_shape(4);
  EXPECT_TRUE(IsQuantizable(variable));
}

}  // namespace
}  // namespace holdfast
