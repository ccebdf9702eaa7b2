// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_JOB_EVALUATION_FIGURES_H_
#define HOLDFAST_COMMON_JOB_EVALUATION_FIGURES_H_

#include <string>
#include <vector>

#include "proto/coordinator.pb.h"

namespace holdfast {

// A figure of an evaluation other than its loss.
struct EvaluationFigure {
  // The name for programs: the field of EvaluationResult, such as
  // "mean_absolute_error", or a key of its `metrics`, which the evaluator
  // chooses.
  std::string name;
  // The name for people: "mean absolute error".
  std::string words;
  double value;
};

// The figures that `result` contains, in a fixed order for logs, tables and
// charts.
std::vector<EvaluationFigure> FiguresOf(const proto::EvaluationResult& result);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_EVALUATION_FIGURES_H_
