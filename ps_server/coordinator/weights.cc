// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/weights.h"

#include <numeric>

namespace holdfast {

MeanWeights WeightsOfMean(const std::vector<MeanTerm>& terms) {
  uint64_t all = 0;
  uint64_t unit = 0;
  for (const MeanTerm& term : terms) {
    all += term.examples;
    unit = std::gcd(unit, term.examples);
  }
  MeanWeights mean;
  if (all == 0) {
    mean.weights.assign(terms.size(), 0);
    return mean;
  }
  const bool divides = all / unit <= kMaxDivisor;
  if (divides) mean.divisor = static_cast<float>(all / unit);
  for (const MeanTerm& term : terms) {
    const double clip_factor = term.clip_factor;
    const double weight =
        divides ? clip_factor * static_cast<double>(term.examples / unit)
                : clip_factor * static_cast<double>(term.examples) /
                      static_cast<double>(all);
    mean.weights.push_back(static_cast<float>(weight));
  }
  return mean;
}

MeanWeights WeightsOfSum(const std::vector<MeanTerm>& terms) {
  MeanWeights sum;
  for (const MeanTerm& term : terms) {
    sum.weights.push_back(term.examples == 0 ? 0 : term.clip_factor);
  }
  return sum;
}

}  // namespace holdfast
