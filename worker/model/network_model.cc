// SPDX-License-Identifier: Apache-2.0
#include "worker/model/network_model.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/shape.h"
#include "worker/model/parameter_arrival.h"

namespace holdfast {
namespace {

// Errors: INVALID_ARGUMENT when two variables have the same name, as "a/b" and
// "b" within "a" may have.
absl::Status CheckDistinct(absl::Span<const proto::Variable> variables) {
  std::set<absl::string_view> names;
  for (const proto::Variable& variable : variables) {
    if (names.insert(variable.name()).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("two variables of the model are named \"", variable.name(),
                     "\": give their layers other names"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkModel>> NetworkModel::Create(
    std::unique_ptr<Network> network, const Loss& loss,
    const ExampleSpec& examples, Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto example_size,
                            NumElements(examples.shape));
  std::unique_ptr<NetworkModel> model(
      new NetworkModel(backend, loss, std::move(network)));
  const std::vector<proto::Variable>& variables = model->network_->variables();
  HOLDFAST_RETURN_IF_ERROR(CheckDistinct(variables));
  const std::vector<int64_t>& shape = model->network_->output_shape();
  const std::string last = absl::StrCat(
      model->network_->OutputName(), " gives the shape ", ShapeString(shape));
  if (shape.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(last, "; the loss takes a vector"));
  }
  if (examples.num_targets > 0) {
    if (!loss.TakesValues()) {
      return absl::InvalidArgumentError(
          "the loss is softmax_cross_entropy, which takes classes; the data "
          "have targets: use mean_squared_error, mean_absolute_error, huber "
          "or sigmoid_cross_entropy, or name the classes as labels of the "
          "data");
    }
    if (shape[0] != examples.num_targets) {
      return absl::InvalidArgumentError(
          absl::StrCat(last, "; the data have ", examples.num_targets,
                       " targets, each of which needs an output"));
    }
    model->num_targets_ = examples.num_targets;
  } else {
    model->num_classes_ = loss.NumClasses(shape[0]);
    if (examples.num_classes.has_value() &&
        model->num_classes_ < *examples.num_classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          last, ", by which the loss tells ", model->num_classes_,
          " classes apart; the data have ", *examples.num_classes, " classes"));
    }
  }
  model->example_size_ = example_size;
  model->outputs_.count = shape[0];
  model->outputs_.predict_class =
      examples.num_targets == 0 && loss.PredictsClass(shape[0]);
  model->parameter_staging_.resize(variables.size());
  model->parameters_.resize(variables.size());
  return model;
}

absl::StatusOr<BatchResult> NetworkModel::ComputeGradients(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    GradientSink sink) {
  const absl::StatusOr<BatchResult> result = Compute(parameters, batch, sink);
  absl::Status status = result.status();
  status.Update(AwaitUploads());
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<BatchResult> NetworkModel::Compute(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    GradientSink sink) {
  Matrix gradient;
  HOLDFAST_ASSIGN_OR_RETURN(const auto forward,
                            RunForward(parameters, batch, &gradient));
  absl::StatusOr<BatchResult> result;
  const auto is_finite = [&]() -> absl::StatusOr<bool> {
    result = ReadResult(batch, forward.loss);
    if (!result.ok()) return result.status();
    return result->finite;
  };
  if (!backend_->IsAsynchronous()) {
    HOLDFAST_ASSIGN_OR_RETURN(const bool finite, is_finite());
    if (!finite) return result;
  }
  delivery_.Begin(sink, is_finite);
  const auto take = [&](int variable, ConstMatrix made) {
    return delivery_.Add(variable, made);
  };
  const auto memory_of = [&](int variable) {
    return delivery_.Memory(variable);
  };
  absl::Status status =
      RunBackward(batch, gradient, Layer::GradientSink(take, memory_of));
  status.Update(delivery_.Finish(/*complete=*/status.ok()));
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<BatchResult> NetworkModel::ComputeOnDevice(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    Layer::GradientSink sink) {
  Matrix gradient;
  HOLDFAST_ASSIGN_OR_RETURN(const auto forward,
                            RunForward(parameters, batch, &gradient));
  if (backend_->IsAsynchronous()) {
    HOLDFAST_RETURN_IF_ERROR(RunBackward(batch, gradient, sink));
    return ReadResult(batch, forward.loss);
  }
  const absl::StatusOr<BatchResult> result = ReadResult(batch, forward.loss);
  if (!result.ok() || !result->finite) return result;
  HOLDFAST_RETURN_IF_ERROR(RunBackward(batch, gradient, sink));
  return result;
}

absl::Status NetworkModel::RunBackward(const Batch& batch, Matrix gradient,
                                       Layer::GradientSink sink) {
  const ScopedTrace trace(backend_->tracer(), TraceKind::kModel, "backward");
  const bool scaled = batch.loss_scale != 1;
  if (scaled) backend_->Scale(batch.loss_scale, gradient, gradient);
  const auto take = [&](int variable, Matrix made) {
    const auto& variables = network_->variables();
    const bool is_average = static_cast<size_t>(variable) < variables.size() &&
                            variables[variable].has_moving_average();
    if (scaled && !is_average) {
      backend_->Scale(1 / batch.loss_scale, made, made);
    }
    return sink(variable, made);
  };
  const auto memory_of = [&](int variable) { return sink.Memory(variable); };
  HOLDFAST_RETURN_IF_ERROR(network_->Backward(
      parameters_, gradient, Layer::GradientSink(take, memory_of)));
  // All of this batch's work has been enqueued.
  return BringNext(batch);
}

absl::StatusOr<BatchResult> NetworkModel::ReadResult(const Batch& batch,
                                                     const PendingLoss& loss) {
  const auto read = [&] {
    if (loss.sums.has_value()) return backend_->ReadLoss(loss);
    const ScopedTrace waiting(backend_->tracer(), TraceKind::kWait, "the loss");
    return backend_->ReadLoss(loss);
  };
  HOLDFAST_ASSIGN_OR_RETURN(const auto sums, read());
  BatchResult result;
  result.examples = batch.size();
  result.loss_sum = sums.loss;
  result.correct = sums.correct;
  result.absolute_error_sum = sums.absolute_error;
  result.squared_error_sum = sums.squared_error;
  result.finite = std::isfinite(sums.loss);
  return result;
}

absl::Status NetworkModel::AwaitUploads() {
  if (backend_->host_memory() == nullptr) return absl::OkStatus();
  // Gradients do not depend on all copies, such as the next batch's.
  const ScopedTrace waiting(backend_->tracer(), TraceKind::kWait,
                            "copies to the device");
  return backend_->AwaitUploads();
}

absl::StatusOr<ConstMatrix> NetworkModel::Inputs(const Batch& batch) {
  const bool is_there = !next_positions_.empty() &&
                        absl::MakeConstSpan(next_positions_) == batch.positions;
  next_positions_.clear();
  if (!is_there) {
    return backend_->Upload(batch.inputs, batch.size(), example_size_,
                            &input_staging_);
  }
  std::swap(input_staging_, next_staging_);
  return next_;
}

absl::Status NetworkModel::BringNext(const Batch& batch) {
  const int64_t examples = batch.next_positions.size();
  if (examples == 0) return absl::OkStatus();
  if (static_cast<int64_t>(batch.next_inputs.size()) !=
      examples * example_size_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the next batch has ", examples, " examples, but ",
        batch.next_inputs.size(), " values; each has ", example_size_));
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto uploaded,
                            backend_->Upload(batch.next_inputs, examples,
                                             example_size_, &next_staging_));
  // A backend that reads host memory directly has uploaded nothing.
  if (uploaded.data == batch.next_inputs.data()) return absl::OkStatus();
  next_ = uploaded;
  next_positions_.assign(batch.next_positions.begin(),
                         batch.next_positions.end());
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> NetworkModel::Evaluate(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch) {
  const absl::StatusOr<BatchResult> result = RunEvaluation(parameters, batch);
  absl::Status status = result.status();
  status.Update(AwaitUploads());
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<BatchResult> NetworkModel::RunEvaluation(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto forward,
                            RunForward(parameters, batch, nullptr));
  absl::StatusOr<BatchResult> result = ReadResult(batch, forward.loss);
  if (!result.ok() || !batch.wants_outputs) return result;
  HOLDFAST_ASSIGN_OR_RETURN(const auto download,
                            backend_->StartDownload(forward.outputs));
  HOLDFAST_RETURN_IF_ERROR(backend_->Await(download));
  result->outputs = download.values;
  return result;
}

absl::Status NetworkModel::BringParameter(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    size_t i) {
  const proto::Variable& variable = network_->variables()[i];
  if (batch.arrival != nullptr) {
    HOLDFAST_RETURN_IF_ERROR(batch.arrival->Await(i));
    HOLDFAST_RETURN_IF_ERROR(CheckParameters(absl::MakeConstSpan(&variable, 1),
                                             parameters.subspan(i, 1)));
  }
  // A matrix keeps its shape, a vector becomes a row.
  const int64_t rows = variable.shape_size() > 1 ? variable.shape(0) : 1;
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto uploaded,
      backend_->Upload(parameters[i], rows, parameters[i].size() / rows,
                       &parameter_staging_[i]));
  parameters_[i] = uploaded;
  return absl::OkStatus();
}

absl::StatusOr<NetworkModel::Forward> NetworkModel::RunForward(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    Matrix* gradient) {
  const ScopedTrace trace(backend_->tracer(), TraceKind::kModel, "forward");
  const bool all_are_here = batch.arrival == nullptr;
  if (all_are_here || parameters.size() != network_->variables().size()) {
    HOLDFAST_RETURN_IF_ERROR(
        CheckParameters(network_->variables(), parameters));
  }
  absl::Status status =
      CheckBatch(batch, example_size_, num_classes_, num_targets_);
  if (!status.ok()) return status;

  // Uploaded in the order in which the network needs them.
  HOLDFAST_ASSIGN_OR_RETURN(const auto input, Inputs(batch));
  // The number of parameters that were brought.
  size_t brought = 0;
  const auto bring_through = [&](size_t end) -> absl::Status {
    for (; brought < end; ++brought) {
      HOLDFAST_RETURN_IF_ERROR(BringParameter(parameters, batch, brought));
    }
    return absl::OkStatus();
  };
  const auto bring = [&](absl::Span<const ConstMatrix> of_layer) {
    return bring_through(of_layer.data() + of_layer.size() -
                         parameters_.data());
  };
  const Pass::Bring bring_layer = bring;
  Pass pass = {/*training=*/gradient != nullptr, batch.positions};
  if (!all_are_here && network_->BringsParameters()) {
    pass.bring = &bring_layer;
  } else {
    HOLDFAST_RETURN_IF_ERROR(bring_through(parameters.size()));
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto outputs,
                            network_->Forward(pass, parameters_, input, batch));
  HOLDFAST_RETURN_IF_ERROR(bring_through(parameters.size()));
  if (gradient != nullptr) {
    status = backend_->Reserve(outputs.size(), &loss_gradient_);
    if (!status.ok()) return status;
    *gradient = loss_gradient_.View(batch.size(), outputs.cols);
  }
  absl::StatusOr<PendingLoss> loss =
      loss_.Start(backend_, outputs,
                  {batch.labels, batch.targets, batch.weights}, gradient);
  if (!loss.ok()) return loss.status();
  return Forward{outputs, *std::move(loss)};
}

}  // namespace holdfast
