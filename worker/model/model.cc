// SPDX-License-Identifier: Apache-2.0
#include "worker/model/model.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/shape.h"

namespace holdfast {

absl::Status CheckParameters(
    absl::Span<const proto::Variable> variables,
    absl::Span<const absl::Span<const float>> parameters) {
  if (parameters.size() != variables.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model was given values of ", parameters.size(),
                     " variables; it has ", variables.size()));
  }
  for (size_t i = 0; i < variables.size(); ++i) {
    const proto::Variable& variable = variables[i];
    HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                              NumElements(variable.shape()));
    if (static_cast<int64_t>(parameters[i].size()) != elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable \"", variable.name(), "\": the model was given ",
          parameters[i].size(), " values, its shape is ",
          ShapeString(variable.shape())));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const Batch& batch, int64_t example_size,
                        int64_t num_classes, int64_t num_targets) {
  if (batch.size() == 0) {
    return absl::InvalidArgumentError("the batch has no examples");
  }
  if (static_cast<int64_t>(batch.inputs.size()) !=
      batch.size() * example_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the batch has ", batch.inputs.size(), " input values for ",
        batch.size(), " examples; the model takes ", example_size,
        " values for each"));
  }
  if (!batch.positions.empty() &&
      static_cast<int64_t>(batch.positions.size()) != batch.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has ", batch.positions.size(),
                     " positions for ", batch.size(), " examples"));
  }
  if (!batch.weights.empty() &&
      static_cast<int64_t>(batch.weights.size()) != batch.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has ", batch.weights.size(), " weights for ",
                     batch.size(), " examples"));
  }
  if (batch.num_targets != num_targets) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the batch has ", batch.num_targets,
        " targets for each example; the model takes ", num_targets));
  }
  if (num_targets > 0) return absl::OkStatus();
  for (int64_t i = 0; i < batch.size(); ++i) {
    if (batch.labels[i] < 0 || batch.labels[i] >= num_classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "example ", i, " of the batch has the label ", batch.labels[i],
          "; the model knows the classes 0 to ", num_classes - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
