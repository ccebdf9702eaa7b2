// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_LAYERS_CHAIN_H_
#define HOLDFAST_WORKER_MODEL_LAYERS_CHAIN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/layers/layer.h"

namespace holdfast {

// A sequence of layers, each of which takes the output of the one before it. A
// chain without layers is the identity. The chain's variables are those of all
// its layers, in order.
//
// Thread-compatible. Allocates no memory of its own in a pass.
class Chain {
 public:
  // Creates `layers` for examples of `input_shape`, with `prefix` before the
  // layers' names. A layer's randomness follows from `key` and the layer's
  // place, a number that counts up from `first_place`. `backend` must outlive
  // the chain.
  // Errors: INVALID_ARGUMENT, with the layer's name, when two have the same
  // name; those of CreateLayer.
  static absl::StatusOr<std::unique_ptr<Chain>> Create(
      const google::protobuf::RepeatedPtrField<proto::Layer>& layers,
      const std::string& prefix, absl::Span<const int64_t> input_shape,
      uint64_t key, uint32_t first_place, Backend* backend);

  const std::vector<proto::Variable>& variables() const { return variables_; }
  const std::vector<int64_t>& output_shape() const { return output_shape_; }
  // The name of the last layer; empty if there are no layers.
  std::string last_name() const { return names_.empty() ? "" : names_.back(); }

  // Layer::TakesAddend of the last layer; false if there are no layers.
  bool TakesAddend() const;
  // Whether Backward() does not overwrite dy.
  bool KeepsGradient() const { return layers_.empty() || TakesAddend(); }
  // Layer::AddsGradient of the first layer; false if there are no layers.
  bool AddsGradient() const {
    return !layers_.empty() && layers_[0]->AddsGradient();
  }
  void AddGradientTo(Matrix sum) { layers_[0]->AddGradientTo(sum); }

  // Layer::UseOfInput of the first layer; `unless` if there are no layers.
  Use UseOfInput(Use unless) const {
    return layers_.empty() ? unless : layers_[0]->UseOfInput();
  }
  // Layer::TellUseOfOutput for the chain's output, unless there are no layers.
  void TellUseOfOutput(Use use) {
    if (last_own_ != nullptr) last_own_->TellUseOfOutput(use);
  }

  // As in Layer. `x` must stay valid for Backward().
  absl::StatusOr<ConstMatrix> Forward(const Pass& pass,
                                      absl::Span<const ConstMatrix> parameters,
                                      ConstMatrix x);
  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix> parameters,
                                  Matrix dy, bool want_dx,
                                  Layer::GradientSink sink);

 private:
  Chain() = default;

  absl::Span<const ConstMatrix> ParametersOf(
      absl::Span<const ConstMatrix> parameters, int layer) const;

  Backend* backend_ = nullptr;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<proto::Variable> variables_;
  std::vector<int64_t> output_shape_;
  // The layers' names.
  std::vector<std::string> names_;
  // The index of each layer's first variable.
  std::vector<int> first_variable_;
  // The index of the first layer with variables, at which the backward pass may
  // end; the number of layers if no layer has variables.
  int first_trained_layer_ = 0;
  // Indexed by layer: whether it is a relu that the layer before it applies.
  std::vector<bool> absorbed_;
  // The last layer that is not absorbed; null if there are no layers.
  Layer* last_own_ = nullptr;
  // In the pass under way, values_[i] is the input of layer i, and values_[i +
  // 1] its output.
  std::vector<ConstMatrix> values_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_CHAIN_H_
