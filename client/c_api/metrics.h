// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_METRICS_H_
#define HOLDFAST_CLIENT_C_API_METRICS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/c_api/holdfast.h"
#include "proto/coordinator.pb.h"

namespace holdfast::c_api {

// Converts named figures to an EvaluationResult: to its fields for the figures
// that it knows, and to its other metrics for the rest.
// Errors: INVALID_ARGUMENT for a name that is NULL, empty or given twice, or if
// there is no loss.
absl::StatusOr<proto::EvaluationResult> ReadMetrics(
    absl::Span<const holdfast_metric> metrics);

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_METRICS_H_
