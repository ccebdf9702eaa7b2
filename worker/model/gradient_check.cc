#include "worker/model/gradient_check.h"

#include <algorithm>
#include <cmath>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

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
                            const Batch& batch, float step, double tolerance) {
  const std::vector<proto::Variable> variables = model->Variables();
  const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                   parameters.end());
  absl::Status status = CheckParameters(variables, spans);
  if (!status.ok()) return status;
  const auto wrong = [&](int variable, const auto&... what) {
    return absl::FailedPreconditionError(absl::StrCat(
        "variable \"", variables[variable].name(), "\": ", what...));
  };

  std::vector<std::vector<float>> gradients(variables.size());
  std::vector<int> calls(variables.size());
  const absl::StatusOr<BatchResult> result = model->ComputeGradients(
      spans, batch, [&](int variable, absl::Span<const float> gradient) {
        gradients[variable].assign(gradient.begin(), gradient.end());
        ++calls[variable];
      });
  if (!result.ok()) return result.status();
  const bool averages = std::any_of(
      variables.begin(), variables.end(),
      [](const proto::Variable& v) { return v.has_moving_average(); });
  if (batch.positions.empty() && !averages) {
    const absl::StatusOr<BatchResult> forward = model->Evaluate(spans, batch);
    if (!forward.ok()) return forward.status();
    if (forward->loss_sum != result->loss_sum) {
      return absl::FailedPreconditionError(
          absl::StrCat("ComputeGradients finds the loss ", result->loss_sum,
                       ", Evaluate ", forward->loss_sum));
    }
  }

  for (size_t v = 0; v < variables.size(); ++v) {
    const bool trainable =
        !variables[v].has_trainable() || variables[v].trainable();
    if (calls[v] != (trainable ? 1 : 0)) {
      return wrong(v, "has ", calls[v], " gradients");
    }
    if (!trainable) continue;
    if (variables[v].has_moving_average()) continue;
    if (gradients[v].size() != parameters[v].size()) {
      return wrong(v, "has ", parameters[v].size(), " elements, its gradient ",
                   gradients[v].size());
    }
    for (size_t i = 0; i < parameters[v].size(); ++i) {
      float& x = parameters[v][i];
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
      // So that a NaN is wrong too.
      if (!(std::abs(gradients[v][i] - expected) <= tolerance)) {
        return wrong(v, "element ", i, " has the gradient ", gradients[v][i],
                     ", the difference of losses gives ", expected);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast
