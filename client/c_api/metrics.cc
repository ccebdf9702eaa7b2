// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/metrics.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"

namespace holdfast::c_api {

absl::StatusOr<proto::EvaluationResult> ReadMetrics(
    absl::Span<const holdfast_metric> metrics) {
  using Field = google::protobuf::FieldDescriptor;
  proto::EvaluationResult result;
  std::set<std::string> names;
  for (const holdfast_metric& metric : metrics) {
    const std::string name = metric.name == nullptr ? "" : metric.name;
    if (name.empty()) {
      return absl::InvalidArgumentError("a metric has no name");
    }
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("metric \"", name, "\" is given twice"));
    }
    const Field* const field = result.GetDescriptor()->FindFieldByName(name);
    if (field != nullptr && field->cpp_type() == Field::CPPTYPE_DOUBLE) {
      result.GetReflection()->SetDouble(&result, field, metric.value);
    } else {
      (*result.mutable_metrics())[name] = metric.value;
    }
  }
  if (names.count("loss") == 0) {
    return absl::InvalidArgumentError(
        "metric \"loss\" is missing; if there is none, pass NAN");
  }
  return result;
}

}  // namespace holdfast::c_api
