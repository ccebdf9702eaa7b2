// SPDX-License-Identifier: Apache-2.0

// The metrics by which evaluations are compared (proto::Metric).
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_EVALUATION_METRIC_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_EVALUATION_METRIC_H_

#include <optional>
#include <string>

#include "proto/coordinator.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// The metric's name; "loss" by default.
std::string NameOf(const proto::Metric& metric);

// Whether higher is better.
bool IsMaximized(const proto::Metric& metric);

// The value of `metric` in `result`; absent if `result` has none, or if it is
// NaN.
std::optional<double> FigureOf(const proto::EvaluationResult& result,
                               const proto::Metric& metric);

// Whether `a` is better than `b`, by more than `min_delta`.
bool IsBetter(const proto::Metric& metric, double a, double b,
              double min_delta = 0);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_EVALUATION_METRIC_H_
