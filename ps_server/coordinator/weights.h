// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_WEIGHTS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_WEIGHTS_H_

#include <cstdint>
#include <vector>

namespace holdfast {

// A gradient to aggregate: the mean over `examples` examples, to be scaled by
// its clip factor.
struct MeanTerm {
  uint64_t examples = 0;
  float clip_factor = 1;
};

// The aggregate is (w_0 g_0 + w_1 g_1 + ...) / divisor.
struct MeanWeights {
  // Indexed by term; 0 for a term without examples.
  std::vector<float> weights;
  // Above 0.
  float divisor = 1;
};

// The divisor is never above this. Weights are at most the divisor, so sums of
// elements below 2^111 do not overflow. Means of up to 65,536 equal batches,
// the most that a step can have, stay within it.
inline constexpr uint64_t kMaxDivisor = uint64_t{1} << 16;

// The mean by examples. With g the greatest common divisor of all `examples`,
//
//   weight = clip factor x (examples / g),   divisor = all examples / g.
//
// Without clipping the weights are whole numbers, and 1 if all batches have the
// same size. Then sums of whole numbers, or of anything else that float32 adds
// without rounding, are exact, and the mean is rounded only once, by the
// division. Weights that are 1/N each would be rounded first: 105 x float(1/7)
// is not 15.
//
// If the divisor would be above kMaxDivisor, it is 1 and
//
//   weight = clip factor x examples / all examples.
//
// Weights are computed in double and rounded once.
MeanWeights WeightsOfMean(const std::vector<MeanTerm>& terms);

// The sum: the weight is the clip factor, the divisor 1.
MeanWeights WeightsOfSum(const std::vector<MeanTerm>& terms);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_WEIGHTS_H_
