// SPDX-License-Identifier: Apache-2.0
#include "worker/model/gradient_check.h"

#include <algorithm>
#include <cmath>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

absl::StatusOr<double> MeanTrainingLoss(
    Model* model, absl::Span<const absl::Span<const float>> parameters,
    const Batch& batch) {
  const absl::StatusOr<BatchResult> result = model->ComputeGradients(
      parameters, batch, [](int, absl::Span<const float>) {});
  if (!result.ok()) return result.status();
  return result->loss_sum / static_cast<double>(result->examples);
}

}  // namespace

absl::Status CheckGradients(Model* model,
                            std::vector<std::vector<float>> parameters,
                            Batch batch, float step, double tolerance) {
  const std::vector<proto::Variable> variables = model->Variables();
  const std::vector<ModelTable> tables = model->Tables();
  const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                   parameters.end());
  absl::Status status = CheckParameters(variables, spans);
  if (!status.ok()) return status;
  // Indexed like the gradients of sinks: variables, then the rows of tables.
  std::vector<absl::Span<float>> values;
  for (std::vector<float>& of_variable : parameters) {
    values.push_back(absl::MakeSpan(of_variable));
  }
  std::vector<std::vector<float>> rows;
  for (const absl::Span<const float> of_table : batch.rows) {
    rows.emplace_back(of_table.begin(), of_table.end());
  }
  for (std::vector<float>& of_table : rows) {
    values.push_back(absl::MakeSpan(of_table));
  }
  if (rows.size() != tables.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has rows of ", rows.size(),
                     " tables, the model has ", tables.size()));
  }
  const std::vector<absl::Span<const float>> row_spans(rows.begin(),
                                                       rows.end());
  batch.rows = row_spans;
  const auto wrong = [&](size_t place, const auto&... what) {
    const std::string name =
        place < variables.size()
            ? absl::StrCat("variable \"", variables[place].name())
            : absl::StrCat("table \"",
                           tables[place - variables.size()].declared.name());
    return absl::FailedPreconditionError(absl::StrCat(name, "\": ", what...));
  };

  std::vector<std::vector<float>> gradients(values.size());
  std::vector<int> calls(values.size());
  const absl::StatusOr<BatchResult> result = model->ComputeGradients(
      spans, batch, [&](int place, absl::Span<const float> gradient) {
        gradients[place].assign(gradient.begin(), gradient.end());
        ++calls[place];
      });
  if (!result.ok()) return result.status();
  const bool averages = std::any_of(
      variables.begin(), variables.end(),
      [](const proto::Variable& v) { return v.has_moving_average(); });
  if (batch.positions.empty() && !averages) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto forward,
                              model->Evaluate(spans, batch));
    if (forward.loss_sum != result->loss_sum) {
      return absl::FailedPreconditionError(
          absl::StrCat("ComputeGradients finds the loss ", result->loss_sum,
                       ", Evaluate ", forward.loss_sum));
    }
  }

  for (size_t place = 0; place < values.size(); ++place) {
    const bool is_variable = place < variables.size();
    const bool trainable = !is_variable || !variables[place].has_trainable() ||
                           variables[place].trainable();
    if (calls[place] != (trainable ? 1 : 0)) {
      return wrong(place, "has ", calls[place], " gradients");
    }
    if (!trainable) continue;
    if (is_variable && variables[place].has_moving_average()) continue;
    if (gradients[place].size() != values[place].size()) {
      return wrong(place, "has ", values[place].size(),
                   " elements, its gradient ", gradients[place].size());
    }
    for (size_t i = 0; i < values[place].size(); ++i) {
      float& x = values[place][i];
      const float at = x;
      x = at + step;
      const float above = x;
      const absl::StatusOr<double> loss_above =
          MeanTrainingLoss(model, spans, batch);
      x = at - step;
      const float below = x;
      const absl::StatusOr<double> loss_below =
          MeanTrainingLoss(model, spans, batch);
      x = at;
      if (!loss_above.ok()) return loss_above.status();
      if (!loss_below.ok()) return loss_below.status();
      const double expected =
          (*loss_above - *loss_below) / (double{above} - double{below});
      // Written so that a NaN is an error too.
      if (!(std::abs(gradients[place][i] - expected) <= tolerance)) {
        return wrong(place, "element ", i, " has the gradient ",
                     gradients[place][i], ", the difference of losses gives ",
                     expected);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
