// The size of a gradient, and whether it is one.
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_TENSOR_NORM_H_
#define HOLDFAST_COMMON_TENSOR_NORM_H_

#include "absl/types/span.h"

namespace holdfast {

// Whether all of `values` are finite numbers.
bool AllFinite(absl::Span<const float> values);

// The sum of the squares, in double: element i is added to the (i mod 8)-th of
// eight partial sums, and these are added up in order; so the same values give
// the same bits, and an element does not wait for the one before it. The square
// of a float is exact in double, and no sum of them overflows.
double SumOfSquares(absl::Span<const float> values);

// What to multiply a gradient of this `norm` by, so that it has the norm
// `limit` or less.
float ClipFactor(double norm, float limit);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_NORM_H_
