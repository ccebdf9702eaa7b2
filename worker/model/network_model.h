// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_NETWORK_MODEL_H_
#define HOLDFAST_WORKER_MODEL_NETWORK_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/example_source.h"
#include "worker/backend/backend.h"
#include "worker/model/gradient_delivery.h"
#include "worker/model/losses.h"
#include "worker/model/model.h"
#include "worker/model/network.h"

namespace holdfast {

// A model that consists of a network and a loss.
//
// If the backend computes while the host continues, the backward pass begins
// before the loss is known. A thread of the model's own (GradientDelivery)
// waits for the loss and then for the gradients, and passes these on if the
// loss is finite, while the caller's thread enqueues the rest. Memory is
// allocated by the first call, and again only if a batch is larger than all
// before it. If the backend copies, the inputs of the next batch
// (Batch::next_inputs) are copied while the gradients of this batch are
// computed, into additional memory of the same size.
class NetworkModel final : public Model {
 public:
  // `backend` is the backend of `network`, and must outlive the model.
  // Errors: INVALID_ARGUMENT when the outputs do not fit the examples or the
  // loss, or when two variables have the same name.
  static absl::StatusOr<std::unique_ptr<NetworkModel>> Create(
      std::unique_ptr<Network> network, const Loss& loss,
      const ExampleSpec& examples, Backend* backend);

  std::vector<proto::Variable> Variables() const override {
    return network_->variables();
  }
  std::vector<ModelTable> Tables() const override { return network_->tables(); }
  bool AwaitsParameters() const override {
    return network_->BringsParameters();
  }
  absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink) override;
  // Like ComputeGradients, but the gradients stay in the backend's memory until
  // the next pass. `sink` is called by this thread, and gets each gradient once
  // the operations that compute it have been begun. If the backend is
  // asynchronous, that is before the loss is known: if the result then says
  // that the loss is not finite, the gradients are worthless. An error of
  // `sink` ends the pass, and is returned. In any case the parameters and
  // inputs, including those of the next batch, must stay valid until
  // AwaitUploads has returned.
  absl::StatusOr<BatchResult> ComputeOnDevice(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      Layer::GradientSink sink);
  absl::Status AwaitUploads();
  absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const Batch& batch) override;
  OutputSpec Outputs() const override { return outputs_; }

 private:
  NetworkModel(Backend* backend, const Loss& loss,
               std::unique_ptr<Network> network)
      : backend_(backend),
        loss_(loss),
        network_(std::move(network)),
        delivery_(backend, static_cast<int64_t>(network_->variables().size() +
                                                network_->tables().size())) {}

  // The results of a forward pass, which may still be under way.
  struct Forward {
    ConstMatrix outputs;
    PendingLoss loss;
  };
  // Checks and uploads what a pass needs, and runs the network forward. If
  // `gradient` is not null, this is a training pass, which also sets
  // `*gradient` to the gradient of the loss with respect to the outputs.
  absl::StatusOr<Forward> RunForward(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      Matrix* gradient);
  // Waits for the parameter of variable `i`, if it is still on its way, checks
  // it and begins to upload it.
  absl::Status BringParameter(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      size_t i);
  // Runs the network's backward pass from `gradient`, that of the loss, and
  // begins to upload the next batch.
  absl::Status RunBackward(const Batch& batch, Matrix gradient,
                           Layer::GradientSink sink);
  // Waits for the loss, and returns the result of the pass. May be called by
  // the delivering thread.
  absl::StatusOr<BatchResult> ReadResult(const Batch& batch,
                                         const PendingLoss& loss);
  // RunEvaluation is Evaluate, and Compute is ComputeGradients, without the
  // wait for uploads.
  absl::StatusOr<BatchResult> RunEvaluation(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch);
  absl::StatusOr<BatchResult> Compute(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink);

  // Returns the batch's inputs on the device, and uploads them unless they are
  // there already.
  absl::StatusOr<ConstMatrix> Inputs(const Batch& batch);
  // Begins to upload the next batch's inputs.
  absl::Status BringNext(const Batch& batch);

  Backend* const backend_;
  const Loss loss_;
  const std::unique_ptr<Network> network_;
  int64_t example_size_ = 0;
  // Labels are in [0, num_classes_); 0 if examples have targets, one for each
  // output.
  int64_t num_classes_ = 0;
  int64_t num_targets_ = 0;
  OutputSpec outputs_;

  // The inputs of the pass under way. Kept to reuse the memory.
  DeviceBuffer input_staging_;
  // The inputs of the batch that is expected next, and its positions. No
  // positions: its inputs have not been uploaded.
  DeviceBuffer next_staging_;
  ConstMatrix next_;
  std::vector<int64_t> next_positions_;
  std::vector<DeviceBuffer> parameter_staging_;
  std::vector<ConstMatrix> parameters_;
  DeviceBuffer loss_gradient_;
  GradientDelivery delivery_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_NETWORK_MODEL_H_
