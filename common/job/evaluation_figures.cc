// SPDX-License-Identifier: Apache-2.0
#include "common/job/evaluation_figures.h"

#include <map>
#include <string>

namespace holdfast {

std::vector<EvaluationFigure> FiguresOf(const proto::EvaluationResult& result) {
  std::vector<EvaluationFigure> figures;
  if (result.has_accuracy()) {
    figures.push_back({"accuracy", "accuracy", result.accuracy()});
  }
  if (result.has_top_k_accuracy()) {
    figures.push_back(
        {"top_k_accuracy", "top-k accuracy", result.top_k_accuracy()});
  }
  if (result.has_auc()) figures.push_back({"auc", "AUC", result.auc()});
  if (result.has_calibration()) {
    figures.push_back({"calibration", "calibration", result.calibration()});
  }
  if (result.has_mean_absolute_error()) {
    figures.push_back({"mean_absolute_error", "mean absolute error",
                       result.mean_absolute_error()});
  }
  if (result.has_mean_squared_error()) {
    figures.push_back({"mean_squared_error", "mean squared error",
                       result.mean_squared_error()});
  }
  // A protobuf map has no defined order.
  const std::map<std::string, double> metrics(result.metrics().begin(),
                                              result.metrics().end());
  for (const auto& [name, value] : metrics) {
    figures.push_back({name, name, value});
  }
  return figures;
}

}  // namespace holdfast
