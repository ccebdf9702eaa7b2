// SPDX-License-Identifier: Apache-2.0

// Shapes of tensors: dimensions, outermost first; none for a scalar; a
// dimension may be zero. Pure functions, safe from any thread.
#ifndef HOLDFAST_COMMON_TENSOR_SHAPE_H_
#define HOLDFAST_COMMON_TENSOR_SHAPE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {

// The product of the dimensions: 1 for a scalar, 0 when a dimension is 0.
// Errors: INVALID_ARGUMENT for a negative dimension, or when the product of the
// nonzero dimensions does not fit in an int64. So every stride fits in an
// int64, too.
absl::StatusOr<int64_t> NumElements(absl::Span<const int64_t> shape);

// "[784,10]"; "[]" for a scalar.
std::string ShapeString(absl::Span<const int64_t> shape);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TENSOR_SHAPE_H_
