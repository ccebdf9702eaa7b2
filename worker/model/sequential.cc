#include "worker/model/sequential.h"

#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job_file.h"
#include "common/random.h"
#include "common/shape.h"

namespace holdfast {
namespace {

// Errors: INVALID_ARGUMENT when two names are the same.
absl::Status CheckDistinct(const std::vector<std::string>& names) {
  std::map<absl::string_view, size_t> place_of_name;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [other, is_first] = place_of_name.emplace(names[i], i);
    if (!is_first) {
      return absl::InvalidArgumentError(
          absl::StrCat("layers ", other->second, " and ", i,
                       " (counted from 0) are both named \"", names[i], "\""));
    }
  }
  return absl::OkStatus();
}

// Of what is random in the layer with this place in the sequence.
uint64_t KeyOfLayer(uint64_t seed, uint32_t layer) {
  // Keeps these keys apart from other uses of Philox under one seed ("laye").
  constexpr uint32_t kPurpose = 0x6c617965;
  const std::array<uint32_t, 4> bits = Philox4x32(
      {layer, 0, 0, kPurpose},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{bits[1]} << 32 | bits[0];
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sequential>> Sequential::Create(
    const proto::Sequential& config, absl::Span<const int64_t> example_shape,
    std::optional<int64_t> num_classes, uint64_t seed, Backend* backend) {
  const std::vector<std::string> names = LayerNames(config);
  if (absl::Status distinct = CheckDistinct(names); !distinct.ok()) {
    return distinct;
  }
  if (names.empty()) {
    return absl::InvalidArgumentError("the model has no layers");
  }
  const absl::StatusOr<Loss> loss = Loss::Create(config.loss());
  if (!loss.ok()) return loss.status();

  const absl::StatusOr<int64_t> example_size = NumElements(example_shape);
  if (!example_size.ok()) return example_size.status();

  std::unique_ptr<Sequential> model(new Sequential(backend, *loss));
  std::vector<int64_t> shape(example_shape.begin(), example_shape.end());
  for (int i = 0; i < config.layers_size(); ++i) {
    absl::StatusOr<std::unique_ptr<Layer>> layer = CreateLayer(
        config.layers(i), names[i], shape, KeyOfLayer(seed, i), backend);
    if (!layer.ok()) return layer.status();
    shape = (*layer)->output_shape();
    const std::vector<proto::Variable>& variables = (*layer)->variables();
    if (model->variables_.empty()) model->first_trained_layer_ = i;
    model->first_variable_.push_back(model->variables_.size());
    model->variables_.insert(model->variables_.end(), variables.begin(),
                             variables.end());
    model->layers_.push_back(*std::move(layer));
  }
  if (model->variables_.empty()) {
    return absl::InvalidArgumentError(
        "the model has nothing to train: no layer has variables");
  }
  if (shape.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer \"", names.back(), "\", the last, gives the shape ",
                     ShapeString(shape), "; the loss takes a vector"));
  }
  model->num_classes_ = loss->NumClasses(shape[0]);
  if (num_classes.has_value() && model->num_classes_ < *num_classes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer \"", names.back(), "\", the last, gives the shape ",
        ShapeString(shape), ", by which the loss tells ", model->num_classes_,
        " classes apart; the data have ", *num_classes, " classes"));
  }
  model->example_size_ = *example_size;
  model->parameter_staging_.resize(model->variables_.size());
  model->parameters_.resize(model->variables_.size());
  model->values_.resize(model->layers_.size() + 1);
  model->sending_.reserve(model->variables_.size());
  return model;
}

absl::StatusOr<BatchResult> Sequential::ComputeGradients(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    GradientSink sink) {
  Matrix gradient;
  const absl::StatusOr<BatchResult> result =
      RunForward(parameters, batch, &gradient);
  if (!result.ok() || !result->finite) return result;

  sending_.clear();
  size_t delivered = 0;
  const auto deliver_next = [&] {
    const Sending& next = sending_[delivered++];
    sink(next.variable, next.download.values);
  };
  for (int i = layers_.size() - 1; i >= first_trained_layer_; --i) {
    const absl::StatusOr<Matrix> dx = layers_[i]->Backward(
        ParametersOf(i), values_[i], values_[i + 1], gradient,
        /*want_dx=*/i > first_trained_layer_,
        [&](int variable, ConstMatrix made) -> absl::Status {
          const absl::StatusOr<Download> download =
              backend_->StartDownload(made);
          if (!download.ok()) return download.status();
          sending_.push_back({first_variable_[i] + variable, *download});
          // Never waits: the device has the rest of the backward pass to do.
          while (delivered < sending_.size()) {
            const absl::StatusOr<bool> arrived =
                backend_->HasArrived(sending_[delivered].download);
            if (!arrived.ok()) return arrived.status();
            if (!*arrived) break;
            deliver_next();
          }
          return absl::OkStatus();
        });
    if (!dx.ok()) return dx.status();
    gradient = *dx;
  }
  while (delivered < sending_.size()) {
    const absl::Status status = backend_->Await(sending_[delivered].download);
    if (!status.ok()) return status;
    deliver_next();
  }
  return result;
}

absl::StatusOr<BatchResult> Sequential::Evaluate(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch) {
  return RunForward(parameters, batch, nullptr);
}

absl::StatusOr<BatchResult> Sequential::RunForward(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    Matrix* gradient) {
  absl::Status status = CheckParameters(variables_, parameters);
  if (!status.ok()) return status;
  status = CheckBatch(batch, example_size_, num_classes_);
  if (!status.ok()) return status;

  for (size_t i = 0; i < variables_.size(); ++i) {
    // A matrix as it is, a vector as a row.
    const proto::Variable& variable = variables_[i];
    const int64_t rows = variable.shape_size() > 1 ? variable.shape(0) : 1;
    const absl::StatusOr<ConstMatrix> uploaded =
        backend_->Upload(parameters[i], rows, parameters[i].size() / rows,
                         &parameter_staging_[i]);
    if (!uploaded.ok()) return uploaded.status();
    parameters_[i] = *uploaded;
  }
  const absl::StatusOr<ConstMatrix> input = backend_->Upload(
      batch.inputs, batch.size(), example_size_, &input_staging_);
  if (!input.ok()) return input.status();
  values_[0] = *input;
  const Pass pass = {/*training=*/gradient != nullptr, batch.positions};
  for (size_t i = 0; i < layers_.size(); ++i) {
    const absl::StatusOr<ConstMatrix> value =
        layers_[i]->Forward(pass, ParametersOf(i), values_[i]);
    if (!value.ok()) return value.status();
    values_[i + 1] = *value;
  }
  if (gradient != nullptr) {
    status = backend_->Reserve(values_.back().size(), &loss_gradient_);
    if (!status.ok()) return status;
    *gradient = loss_gradient_.View(batch.size(), values_.back().cols);
  }
  const absl::StatusOr<LossSums> sums =
      loss_.Compute(backend_, values_.back(), batch.labels, gradient);
  if (!sums.ok()) return sums.status();
  BatchResult result;
  result.examples = batch.size();
  result.loss_sum = sums->loss;
  result.correct = sums->correct;
  result.absolute_error_sum = sums->absolute_error;
  result.finite = std::isfinite(sums->loss);
  return result;
}

absl::Span<const ConstMatrix> Sequential::ParametersOf(int layer) const {
  return absl::MakeConstSpan(parameters_)
      .subspan(first_variable_[layer], layers_[layer]->variables().size());
}

}  // namespace holdfast
