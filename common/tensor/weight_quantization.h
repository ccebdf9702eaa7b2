// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_TENSOR_WEIGHT_QUANTIZATION_H_
#define HOLDFAST_COMMON_TENSOR_WEIGHT_QUANTIZATION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/training.pb.h"

namespace holdfast {

// Weights [n, channels] as 8-bit integers with a scale per channel, symmetric
// around 0 (Krishnamoorthi 2018, "Quantizing deep convolutional networks for
// efficient inference", 2.1.1 and 3.1):
//
//   scales[c]    = max over i of |w[i, c]| / 127, or 1 if all are 0
//   values[i, c] = w[i, c] / scales[c], rounded to nearest, ties to even
//
// A quantized weight stands for the number values[i, c] x scales[c].
struct QuantizedWeights {
  std::vector<int8_t> values;
  std::vector<float> scales;
};

// Quantizes `weights`, which must be finite and row-major; their number must be
// a multiple of `channels`.
QuantizedWeights QuantizeWeights(absl::Span<const float> weights,
                                 int64_t channels);

// Replaces each of `weights` with the number that its quantized weight stands
// for.
void RoundToQuantized(int64_t channels, absl::Span<float> weights);

// Whether quantization applies to `variable`: a matrix or a kernel, whose last
// dimension is the channels. Biases, scales and the like stay float32.
bool IsQuantizable(const proto::Variable& variable);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_WEIGHT_QUANTIZATION_H_
