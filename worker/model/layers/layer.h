// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_LAYERS_LAYER_H_
#define HOLDFAST_WORKER_MODEL_LAYERS_LAYER_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/training.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/gradient_sink.h"

namespace holdfast {

// The limit of the dimensions that the backend takes, and of the elements of an
// example.
constexpr int64_t kMaxDimension = std::numeric_limits<int32_t>::max();

// What a layer may need to know about the pass that it is part of.
struct Pass {
  // Whether gradients are computed.
  bool training = false;
  // The batch's. Stays valid until the pass is over.
  absl::Span<const int64_t> positions;
  // Applied to the layer's output, if the layer takes them: first the addend is
  // added, then, if `relu`, negative values become 0.
  ConstMatrix addend;
  bool relu = false;
};

// One function in a Chain, with its part of the variables. Shapes are those of
// one example; as matrices, tensors have one example per row.
//
// Thread-compatible. Keeps the memory of its results, and takes more only for a
// larger batch than any before.
class Layer {
 public:
  // Takes the gradient of one of the layer's variables, named by its index in
  // variables(), in row-major order. It stays valid until the next Backward(),
  // except in the sink's own memory (Backend::ReserveFor), which is the sink's
  // to manage. The sink may change it, unless it is the value of a variable
  // that is a moving average.
  using GradientSink = GradientSinkOf<absl::Status, Matrix>;

  virtual ~Layer() = default;

  // Declared to the job with "<layer>/" before their names.
  const std::vector<proto::Variable>& variables() const { return variables_; }
  const std::vector<int64_t>& output_shape() const { return output_shape_; }

  // Whether the layer can apply Pass::relu, and Pass::addend. Such operations
  // are bound by memory bandwidth, and a layer whose last operation passes over
  // its output anyway can apply them at no extra cost.
  virtual bool TakesRelu() const { return false; }
  virtual bool TakesAddend() const { return false; }

  // Whether the layer uses x, and dy, in products only, so that a rounded copy
  // alone is enough.
  virtual bool TakesFactor() const { return false; }
  virtual bool TakesGradientFactor() const { return false; }

  // Tells the layer whether the one that takes its y, and the one that takes
  // its dx, use it in products only. The default is false.
  void TellTakers(bool y_is_factor, bool dx_is_factor) {
    y_is_factor_ = y_is_factor;
    dx_is_factor_ = dx_is_factor;
  }

  // Whether the layer can add dx to a matrix at no extra cost, as a product
  // can.
  virtual bool AddsGradient() const { return false; }
  // Makes the next Backward() add dx to `sum` and return it; if `sum` has no
  // data, it does not.
  void AddGradientTo(Matrix sum) { gradient_sum_ = sum; }

  // Computes the layer's output [examples, outputs] for `x` [examples, inputs]
  // under `parameters`, one for each of variables(). It stays valid until the
  // next Forward(). Errors: those of the backend; INVALID_ARGUMENT, with the
  // layer's name, when the pass lacks what the layer needs.
  virtual absl::StatusOr<ConstMatrix> Forward(
      const Pass& pass, absl::Span<const ConstMatrix> parameters,
      ConstMatrix x) = 0;

  // The chain rule. `x` and `y` are from the last Forward(), whose pass must be
  // a training pass that is still under way, and `dy` is the gradient of the
  // mean loss with respect to y. Computes the gradients of the variables, and
  // gives them to `sink` in reverse order of variables(), each as early as
  // possible; then, if `want_dx`, computes and returns the gradient with
  // respect to x. dy is the gradient after a relu of the pass, but before the
  // relu if the pass had an addend. It may be overwritten, unless the layer
  // takes an addend. Errors: those of the backend and of `sink`.
  virtual absl::StatusOr<Matrix> Backward(
      absl::Span<const ConstMatrix> parameters, ConstMatrix x, ConstMatrix y,
      Matrix dy, bool want_dx, GradientSink sink) = 0;

 protected:
  Layer(Backend* backend, std::vector<int64_t> output_shape,
        std::vector<proto::Variable> variables)
      : backend_(backend),
        output_shape_(std::move(output_shape)),
        variables_(std::move(variables)) {}

  bool y_is_factor() const { return y_is_factor_; }
  bool dx_is_factor() const { return dx_is_factor_; }
  Matrix gradient_sum() const { return gradient_sum_; }

  Backend* const backend_;

 private:
  const std::vector<int64_t> output_shape_;
  const std::vector<proto::Variable> variables_;
  bool y_is_factor_ = false;
  bool dx_is_factor_ = false;
  Matrix gradient_sum_;
};

// Makes a layer's float32 variable.
inline proto::Variable MakeVariable(std::string name,
                                    absl::Span<const int64_t> shape,
                                    proto::Initializer initializer) {
  proto::Variable variable;
  variable.set_name(std::move(name));
  for (int64_t dimension : shape) variable.add_shape(dimension);
  variable.set_dtype(proto::FLOAT32);
  *variable.mutable_initializer() = std::move(initializer);
  variable.set_trainable(true);
  return variable;
}

// `given`, or by default glorot with a uniform distribution.
inline proto::Initializer KernelInitializer(bool is_given,
                                            const proto::Initializer& given) {
  if (is_given) return given;
  proto::Initializer glorot;
  glorot.mutable_glorot()->set_distribution(proto::Initializer::UNIFORM);
  return glorot;
}

// `given`, or by default zeros.
inline proto::Initializer BiasInitializer(bool is_given,
                                          const proto::Initializer& given) {
  if (is_given) return given;
  proto::Initializer zeros;
  zeros.mutable_zeros();
  return zeros;
}

// INVALID_ARGUMENT: layer `name`, and `what` is wrong.
template <typename... What>
absl::Status LayerError(const std::string& name, const What&... what) {
  return absl::InvalidArgumentError(
      absl::StrCat("layer \"", name, "\": ", what...));
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_LAYER_H_
