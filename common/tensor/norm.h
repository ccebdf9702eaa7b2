// SPDX-License-Identifier: Apache-2.0

// The norm of a gradient, and whether it is finite.
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_TENSOR_NORM_H_
#define HOLDFAST_COMMON_TENSOR_NORM_H_

#include "absl/types/span.h"

namespace holdfast {

// Whether all `values` are finite.
bool AllFinite(absl::Span<const float> values);

// The sum of the squares, in double: element i is added to the (i mod 8)-th of
// eight partial sums, and these are added up in order; so the same values give
// the same bits, and additions of consecutive elements do not depend on each
// other. The square of a float is exact in double, and no sum of such squares
// overflows.
double SumOfSquares(absl::Span<const float> values);

// The factor that scales a gradient of this `norm` down to at most `limit`.
float ClipFactor(double norm, float limit);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_NORM_H_
