// SPDX-License-Identifier: Apache-2.0
#include "examples/custom_model/tanh_classifier.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast_examples {
namespace {

using ::holdfast::Batch;
using ::holdfast::BatchResult;

// Row `i` of a matrix with rows of that length.
template <typename T>
absl::Span<T> Row(absl::Span<T> matrix, int64_t i, int64_t length) {
  return matrix.subspan(i * length, length);
}

// y += a x.
void AddScaled(float a, absl::Span<const float> x, absl::Span<float> y) {
  for (size_t i = 0; i < x.size(); ++i) y[i] += a * x[i];
}

holdfast::proto::Variable MakeVariable(const std::string& name,
                                       absl::Span<const int64_t> shape) {
  holdfast::proto::Variable variable;
  variable.set_name(name);
  for (int64_t dimension : shape) variable.add_shape(dimension);
  variable.set_dtype(holdfast::proto::FLOAT32);
  // Matrices are initialized at random, vectors to zero.
  if (shape.size() > 1) {
    variable.mutable_initializer()->mutable_glorot();
  } else {
    variable.mutable_initializer()->mutable_zeros();
  }
  return variable;
}

}  // namespace

absl::StatusOr<std::unique_ptr<holdfast::Model>> TanhClassifier::Create(
    const holdfast::ModelContext& context) {
  int64_t hidden_units = 0;
  for (const auto& [name, value] : context.options) {
    if (name != "hidden_units") {
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown option \"", name, "\"; there is \"hidden_units\""));
    }
    if (!absl::SimpleAtoi(value, &hidden_units)) hidden_units = 0;
  }
  if (hidden_units < 1 || hidden_units > 65536) {
    return absl::InvalidArgumentError(
        "option \"hidden_units\" must be given, a number from 1 to 65536");
  }
  if (context.weighted) {
    return absl::InvalidArgumentError(
        "the model does not support weights of examples");
  }
  if (!context.num_classes.has_value()) {
    return absl::InvalidArgumentError(
        "the data do not say how many classes they have");
  }
  int64_t inputs = 1;
  for (int64_t dimension : context.example_shape) inputs *= dimension;
  return std::unique_ptr<holdfast::Model>(
      new TanhClassifier(inputs, hidden_units, *context.num_classes));
}

TanhClassifier::TanhClassifier(int64_t inputs, int64_t hidden, int64_t classes)
    : inputs_(inputs),
      hidden_units_(hidden),
      classes_(classes),
      variables_({MakeVariable("hidden/kernel", {inputs, hidden}),
                  MakeVariable("hidden/bias", {hidden}),
                  MakeVariable("logits/kernel", {hidden, classes}),
                  MakeVariable("logits/bias", {classes})}),
      gradients_(kNumVariables) {}

absl::StatusOr<BatchResult> TanhClassifier::Forward(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch) {
  HOLDFAST_RETURN_IF_ERROR(holdfast::CheckParameters(variables_, parameters));
  HOLDFAST_RETURN_IF_ERROR(holdfast::CheckBatch(batch, inputs_, classes_));

  BatchResult result;
  result.examples = batch.size();
  int64_t correct = 0;
  hidden_.resize(batch.size() * hidden_units_);
  probabilities_.resize(batch.size() * classes_);
  for (int64_t e = 0; e < batch.size(); ++e) {
    const auto x = Row(batch.inputs, e, inputs_);
    const auto h = Row(absl::MakeSpan(hidden_), e, hidden_units_);
    const auto p = Row(absl::MakeSpan(probabilities_), e, classes_);
    std::copy(parameters[kC].begin(), parameters[kC].end(), h.begin());
    for (int64_t i = 0; i < inputs_; ++i) {
      AddScaled(x[i], Row(parameters[kV], i, hidden_units_), h);
    }
    for (float& value : h) value = std::tanh(value);
    std::copy(parameters[kB].begin(), parameters[kB].end(), p.begin());
    for (int64_t i = 0; i < hidden_units_; ++i) {
      AddScaled(h[i], Row(parameters[kW], i, classes_), p);
    }
    // p holds the logits; after their maximum is subtracted, exp() cannot
    // overflow.
    const int64_t predicted = std::max_element(p.begin(), p.end()) - p.begin();
    const float max = p[predicted];
    const double at_label = double{p[batch.labels[e]]} - double{max};
    double sum = 0;
    for (float& value : p) {
      value = std::exp(value - max);
      sum += value;
    }
    for (float& value : p) value = static_cast<float>(value / sum);
    result.loss_sum += std::log(sum) - at_label;
    correct += predicted == batch.labels[e] ? 1 : 0;
  }
  result.correct = correct;
  result.finite = std::isfinite(result.loss_sum);
  return result;
}

absl::StatusOr<BatchResult> TanhClassifier::ComputeGradients(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    holdfast::GradientSink sink) {
  absl::StatusOr<BatchResult> result = Forward(parameters, batch);
  if (!result.ok() || !result->finite) return result;
  for (int v = 0; v < kNumVariables; ++v) {
    gradients_[v].assign(parameters[v].size(), 0.0f);
  }

  // The gradient with respect to the logits, (p - [j = label]) / examples,
  // overwrites p.
  const float scale = 1.0f / static_cast<float>(batch.size());
  for (int64_t e = 0; e < batch.size(); ++e) {
    const auto dz = Row(absl::MakeSpan(probabilities_), e, classes_);
    const auto h = Row(absl::MakeSpan(hidden_), e, hidden_units_);
    dz[batch.labels[e]] -= 1;
    for (float& value : dz) value *= scale;
    AddScaled(1, dz, absl::MakeSpan(gradients_[kB]));
    for (int64_t i = 0; i < hidden_units_; ++i) {
      AddScaled(h[i], dz, Row(absl::MakeSpan(gradients_[kW]), i, classes_));
    }
  }
  // The last layer is done: send it while the first is being computed.
  sink(kB, gradients_[kB]);
  sink(kW, gradients_[kW]);

  // The gradient with respect to the argument of tanh, (1 - h^2) (W dz),
  // overwrites h.
  for (int64_t e = 0; e < batch.size(); ++e) {
    const auto dz = Row(absl::MakeSpan(probabilities_), e, classes_);
    const auto h = Row(absl::MakeSpan(hidden_), e, hidden_units_);
    for (int64_t i = 0; i < hidden_units_; ++i) {
      float dh = 0;
      for (int64_t j = 0; j < classes_; ++j) {
        dh += parameters[kW][i * classes_ + j] * dz[j];
      }
      h[i] = (1 - h[i] * h[i]) * dh;
    }
    AddScaled(1, h, absl::MakeSpan(gradients_[kC]));
    for (int64_t i = 0; i < inputs_; ++i) {
      AddScaled(batch.inputs[e * inputs_ + i], h,
                Row(absl::MakeSpan(gradients_[kV]), i, hidden_units_));
    }
  }
  sink(kC, gradients_[kC]);
  sink(kV, gradients_[kV]);
  return result;
}

absl::StatusOr<BatchResult> TanhClassifier::Evaluate(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch) {
  return Forward(parameters, batch);
}

}  // namespace holdfast_examples
