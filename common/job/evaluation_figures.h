#ifndef HOLDFAST_COMMON_JOB_EVALUATION_FIGURES_H_
#define HOLDFAST_COMMON_JOB_EVALUATION_FIGURES_H_

#include <string>
#include <vector>

#include "proto/coordinator.pb.h"

namespace holdfast {

// A figure of an evaluation, beside its loss.
struct EvaluationFigure {
  // As the field of EvaluationResult, for programs: "mean_absolute_error"; or a
  // key of its `metrics`, which is whatever an evaluator calls it.
  std::string name;
  // For people: "mean absolute error".
  std::string words;
  double value;
};

// Those that `result` has, in one order for logs, tables and charts.
std::vector<EvaluationFigure> FiguresOf(const proto::EvaluationResult& result);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_EVALUATION_FIGURES_H_
