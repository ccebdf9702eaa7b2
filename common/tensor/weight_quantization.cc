// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/weight_quantization.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace holdfast {
namespace {

constexpr float kMostPositive = 127;

}  // namespace

QuantizedWeights QuantizeWeights(absl::Span<const float> weights,
                                 int64_t channels) {
  QuantizedWeights quantized;
  quantized.scales.assign(channels, 0);
  for (size_t i = 0; i < weights.size(); ++i) {
    float& scale = quantized.scales[i % channels];
    scale = std::max(scale, std::abs(weights[i]));
  }
  for (float& scale : quantized.scales) {
    scale = scale == 0 ? 1 : scale / kMostPositive;
    // The quotient can underflow to 0 if all weights are denormal.
    if (scale == 0) scale = 1;
  }
  quantized.values.resize(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const float value =
        std::nearbyint(weights[i] / quantized.scales[i % channels]);
    quantized.values[i] =
        static_cast<int8_t>(std::clamp(value, -kMostPositive, kMostPositive));
  }
  return quantized;
}

void RoundToQuantized(int64_t channels, absl::Span<float> weights) {
  const QuantizedWeights quantized = QuantizeWeights(weights, channels);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = quantized.values[i] * quantized.scales[i % channels];
  }
}

bool IsQuantizable(const proto::Variable& variable) {
  return variable.shape_size() >= 2;
}

}  // namespace holdfast
