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
  // w_i, indexed by term. 0 for a term without examples.
  std::vector<float> weights;
  // The divisor of the sum; above 0.
  float divisor = 1;
};

// The maximum divisor. Weights are at most the divisor, so sums of elements
// below 2^111 do not overflow. The mean of 65,536 equal batches, the most that
// a step can have, has this divisor.
inline constexpr uint64_t kMaxDivisor = uint64_t{1} << 16;

// Returns the weights of a mean over examples. With g the greatest common
// divisor of all `examples`,
//
//   weight = clip factor x (examples / g),   divisor = all examples / g.
//
// Without clipping the weights are whole numbers, and 1 if all batches have the
// same size. Then sums of whole numbers, or of anything else that float32 adds
// without rounding, are exact, and the mean is rounded only once, by the
// division. Weights that are 1/N each would be rounded first: 105 x float(1/7)
// is not 15.
//
// If this divisor would be above kMaxDivisor, the divisor is 1 and
//
//   weight = clip factor x examples / all examples.
//
// Weights are computed in double and rounded once.
MeanWeights WeightsOfMean(const std::vector<MeanTerm>& terms);

// Returns the weights of a sum: each weight is the term's clip factor, and the
// divisor is 1.
MeanWeights WeightsOfSum(const std::vector<MeanTerm>& terms);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_WEIGHTS_H_
