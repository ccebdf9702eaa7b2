// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_FIRST_VALUES_H_
#define HOLDFAST_CLIENT_FIRST_VALUES_H_

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Returns all first values of a variable (its index as declared), row-major.
// The memory must stay unchanged until the call that requested them has
// returned.
using FirstValues =
    std::function<absl::StatusOr<absl::Span<const float>>(size_t variable)>;

// Returns what `values` returns for a variable of `declaration`. Errors, naming
// the variable: INVALID_ARGUMENT if the number of elements is wrong; those of
// `values`.
absl::StatusOr<absl::Span<const float>> FirstValuesOf(
    const FirstValues& values, const proto::Declaration& declaration,
    size_t variable);

// Fills in the digests of all variables of `declaration` whose initializer is
// `given`, from the values that `values` returns. Errors: those of
// FirstValuesOf.
absl::Status DigestFirstValues(const FirstValues& values,
                               proto::Declaration* declaration);

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_FIRST_VALUES_H_
