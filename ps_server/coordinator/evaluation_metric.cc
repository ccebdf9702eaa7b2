// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/evaluation_metric.h"

#include <cmath>

#include "common/job/evaluation_figures.h"

namespace holdfast {

std::string NameOf(const proto::Metric& metric) {
  return metric.name().empty() ? "loss" : metric.name();
}

bool IsMaximized(const proto::Metric& metric) {
  switch (metric.goal()) {
    case proto::Metric::MINIMIZE:
      return false;
    case proto::Metric::MAXIMIZE:
      return true;
    default:
      break;
  }
  const std::string name = NameOf(metric);
  return name == "accuracy" || name == "top_k_accuracy" || name == "auc";
}

std::optional<double> FigureOf(const proto::EvaluationResult& result,
                               const proto::Metric& metric) {
  const std::string name = NameOf(metric);
  std::optional<double> value;
  if (name == "loss") {
    value = result.loss();
  } else {
    for (const EvaluationFigure& figure : FiguresOf(result)) {
      if (figure.name == name) value = figure.value;
    }
    if (const auto found = result.metrics().find(name);
        found != result.metrics().end()) {
      value = found->second;
    }
  }
  if (value.has_value() && std::isnan(*value)) return std::nullopt;
  return value;
}

bool IsBetter(const proto::Metric& metric, double a, double b,
              double min_delta) {
  return IsMaximized(metric) ? a > b + min_delta : a < b - min_delta;
}

}  // namespace holdfast
