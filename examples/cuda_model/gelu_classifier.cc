// SPDX-License-Identifier: Apache-2.0
#include "examples/cuda_model/gelu_classifier.h"

#include <cmath>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "examples/cuda_model/gelu.h"

namespace holdfast_examples {
namespace {

using ::holdfast::Batch;
using ::holdfast::BatchResult;
using ::holdfast::ConstMatrix;
using ::holdfast::Form;
using ::holdfast::Matrix;

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

absl::Status StatusOf(const char* cuda_error) {
  if (cuda_error == nullptr) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("gelu: ", cuda_error));
}

}  // namespace

absl::StatusOr<std::unique_ptr<holdfast::Model>> GeluClassifier::Create(
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
  return std::unique_ptr<holdfast::Model>(new GeluClassifier(
      context.backend, inputs, hidden_units, *context.num_classes));
}

GeluClassifier::GeluClassifier(holdfast::Backend* backend, int64_t inputs,
                               int64_t hidden, int64_t classes)
    : backend_(backend),
      inputs_(inputs),
      hidden_units_(hidden),
      classes_(classes),
      variables_({MakeVariable("hidden/kernel", {inputs, hidden}),
                  MakeVariable("hidden/bias", {hidden}),
                  MakeVariable("logits/kernel", {hidden, classes}),
                  MakeVariable("logits/bias", {classes})}) {}

absl::Status GeluClassifier::Reserve(int64_t rows, int64_t cols,
                                     holdfast::DeviceBuffer* buffer,
                                     Matrix* matrix) {
  const absl::Status status = backend_->Reserve(rows * cols, buffer);
  if (status.ok()) *matrix = buffer->View(rows, cols);
  return status;
}

absl::StatusOr<BatchResult> GeluClassifier::Forward(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    bool want_gradient) {
  absl::Status status = holdfast::CheckParameters(variables_, parameters);
  if (!status.ok()) return status;
  status = holdfast::CheckBatch(batch, inputs_, classes_);
  if (!status.ok()) return status;

  const int64_t examples = batch.size();
  for (int v = 0; v < kNumVariables; ++v) {
    // A vector is uploaded as a matrix of one row.
    const int64_t rows =
        variables_[v].shape_size() > 1 ? variables_[v].shape(0) : 1;
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto uploaded,
        backend_->Upload(parameters[v], rows, parameters[v].size() / rows,
                         &value_buffers_[v]));
    values_[v] = uploaded;
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto x,
      backend_->Upload(batch.inputs, examples, inputs_, &x_buffer_));
  x_ = x;
  status.Update(Reserve(examples, hidden_units_, &a_buffer_, &a_));
  status.Update(Reserve(examples, hidden_units_, &h_buffer_, &h_));
  status.Update(Reserve(examples, classes_, &z_buffer_, &z_));
  status.Update(Reserve(examples, classes_, &dz_buffer_, &dz_));
  if (!status.ok()) return status;

  backend_->MatMul(Form::kPlain, x_, Form::kPlain, values_[kV], a_);
  backend_->AddBias(values_[kC], a_);
  status = backend_->Custom(
      {a_, h_}, [a = a_, h = h_](std::optional<void*> cuda_stream) {
        if (cuda_stream.has_value()) {
          return StatusOf(LaunchGelu(*cuda_stream, a.data, a.size(), h.data));
        }
        Gelu(a.data, a.size(), h.data);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  backend_->MatMul(Form::kPlain, h_, Form::kPlain, values_[kW], z_);
  backend_->AddBias(values_[kB], z_);
  const auto sums = backend_->SoftmaxCrossEntropy(
      z_, {batch.labels}, want_gradient ? &dz_ : nullptr);
  if (!sums.ok()) return sums.status();
  BatchResult result;
  result.examples = examples;
  result.loss_sum = sums->loss;
  result.correct = sums->correct;
  result.finite = std::isfinite(sums->loss);
  return result;
}

absl::StatusOr<BatchResult> GeluClassifier::ComputeGradients(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    holdfast::GradientSink sink) {
  absl::StatusOr<BatchResult> result =
      Forward(parameters, batch, /*want_gradient=*/true);
  if (!result.ok() || !result->finite) return result;
  absl::Status status;
  for (int v = 0; v < kNumVariables; ++v) {
    status.Update(Reserve(values_[v].rows, values_[v].cols,
                          &gradient_buffers_[v], &gradients_[v]));
  }
  status.Update(Reserve(batch.size(), hidden_units_, &dh_buffer_, &dh_));
  if (!status.ok()) return status;

  // Each gradient is copied to the host as soon as it is ready.
  holdfast::Download downloads[kNumVariables];
  const auto start = [&](Variable v) {
    const auto download = backend_->StartDownload(gradients_[v]);
    if (download.ok()) downloads[v] = *download;
    status.Update(download.status());
  };
  backend_->SumRows(dz_, gradients_[kB]);
  start(kB);
  backend_->MatMul(Form::kTransposed, h_, Form::kPlain, dz_, gradients_[kW]);
  start(kW);
  backend_->MatMul(Form::kPlain, dz_, Form::kTransposed, values_[kW], dh_);
  status.Update(backend_->Custom(
      {a_, dh_}, [a = a_, dh = dh_](std::optional<void*> cuda_stream) {
        if (cuda_stream.has_value()) {
          return StatusOf(LaunchGeluGradient(*cuda_stream, a.data, dh.data,
                                             a.size(), dh.data));
        }
        GeluGradient(a.data, dh.data, a.size(), dh.data);
        return absl::OkStatus();
      }));
  backend_->SumRows(dh_, gradients_[kC]);
  start(kC);
  backend_->MatMul(Form::kTransposed, x_, Form::kPlain, dh_, gradients_[kV]);
  start(kV);
  if (!status.ok()) return status;
  for (const Variable v : {kB, kW, kC, kV}) {
    status = backend_->Await(downloads[v]);
    if (!status.ok()) return status;
    sink(v, downloads[v].values);
  }
  return result;
}

absl::StatusOr<BatchResult> GeluClassifier::Evaluate(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch) {
  return Forward(parameters, batch, /*want_gradient=*/false);
}

}  // namespace holdfast_examples
