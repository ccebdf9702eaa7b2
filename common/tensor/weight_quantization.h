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
//   scales[c]    = max over i of |w[i, c]| / 127, or 1 where all are 0
//   values[i, c] = w[i, c] / scales[c], rounded to the nearest, half to even
//
// A value stands for values[i, c] scales[c].
struct QuantizedWeights {
  std::vector<int8_t> values;
  std::vector<float> scales;
};

// `weights` are finite, row-major, and a multiple of `channels` in number.
QuantizedWeights QuantizeWeights(absl::Span<const float> weights,
                                 int64_t channels);

// Replaces `weights` by what their 8-bit integers stand for.
void RoundToQuantized(int64_t channels, absl::Span<float> weights);

// Whether `variable` is one that quantisation rounds, a matrix or a kernel: its
// last dimension is the channels. Biases, scales and the like stay float32.
bool IsQuantizable(const proto::Variable& variable);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_WEIGHT_QUANTIZATION_H_
