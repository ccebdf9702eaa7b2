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

// Layers, each of which takes what the one before it makes; without any, the
// identity. Its variables are those of all layers, in order.
//
// Thread-compatible. Takes no memory of its own in a pass.
class Chain {
 public:
  // Makes `layers` for examples of `input_shape`, with `prefix` before their
  // names. What is random in one follows from `key` and its place, the first's
  // being `first_place`. `backend` must outlive the chain.
  // Errors: INVALID_ARGUMENT, with the layer's name, when two have the same
  // name, and as CreateLayer.
  static absl::StatusOr<std::unique_ptr<Chain>> Create(
      const google::protobuf::RepeatedPtrField<proto::Layer>& layers,
      const std::string& prefix, absl::Span<const int64_t> input_shape,
      uint64_t key, uint32_t first_place, Backend* backend);

  const std::vector<proto::Variable>& variables() const { return variables_; }
  const std::vector<int64_t>& output_shape() const { return output_shape_; }
  // Of the last layer; empty without any.
  std::string last_name() const { return names_.empty() ? "" : names_.back(); }

  // As Layer's, by the last layer; without any it takes nothing.
  bool TakesAddend() const;
  // Whether Backward() leaves dy as it is.
  bool KeepsGradient() const { return layers_.empty() || TakesAddend(); }
  // As Layer's, by the first layer.
  bool AddsGradient() const {
    return !layers_.empty() && layers_[0]->AddsGradient();
  }
  void AddGradientTo(Matrix sum) { layers_[0]->AddGradientTo(sum); }

  // As Layer's. `x` must stay for Backward().
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
  // Of the layers.
  std::vector<std::string> names_;
  // The place of each layer's first among the variables.
  std::vector<int> first_variable_;
  // The first layer with variables, where the backward pass may end; as many as
  // there are layers if none has any.
  int first_trained_layer_ = 0;
  // Of each layer, whether it is a relu that the one before it does.
  std::vector<bool> absorbed_;
  // Of the pass under way: values_[i] goes into layer i, values_[i + 1] comes
  // out.
  std::vector<ConstMatrix> values_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_CHAIN_H_
