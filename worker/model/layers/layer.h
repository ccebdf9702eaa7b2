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

// Dimensions that the backend takes, and elements of an example.
constexpr int64_t kMaxDimension = std::numeric_limits<int32_t>::max();

// What a layer may have to know of the pass that it is part of.
struct Pass {
  // Whether gradients are computed.
  bool training = false;
  // Of the batch. Stays until the pass is over.
  absl::Span<const int64_t> positions;
  // What is done to the layer's values before they leave it, if it takes that:
  // this is added, and then of each the greater of it and 0 is made.
  ConstMatrix addend;
  bool relu = false;
};

// One function in a Chain, with its part of the variables. Shapes are
// those of one example; as matrices, tensors have an example per row.
//
// Thread-compatible. Keeps the memory of its results, and takes more only for a
// larger batch than any before.
class Layer {
 public:
  // Takes the gradient of one of the layer's variables, by its place in
  // variables(), with the variable's elements in row-major order. It stays
  // until the next Backward(), but what Backend::ReserveFor has made of the
  // sink's memory is the sink's. The sink may change it, but not the value of a
  // variable with a moving average.
  using GradientSink = GradientSinkOf<absl::Status, Matrix>;

  virtual ~Layer() = default;

  // Declared with "<layer>/" before their names.
  const std::vector<proto::Variable>& variables() const { return variables_; }
  const std::vector<int64_t>& output_shape() const { return output_shape_; }

  // Whether a pass may have a relu, and an addend: memory is what such
  // operations wait for, and a layer that goes over its values last anyway does
  // them by the way.
  virtual bool TakesRelu() const { return false; }
  virtual bool TakesAddend() const { return false; }

  // Whether all that it makes of x, and of dy, are products, so that a rounded
  // copy alone will do.
  virtual bool TakesFactor() const { return false; }
  virtual bool TakesGradientFactor() const { return false; }

  // Tells whether that is so of the layer that gets y, and of that which gets
  // dx; by default it is not.
  void TellTakers(bool y_is_factor, bool dx_is_factor) {
    y_is_factor_ = y_is_factor;
    dx_is_factor_ = dx_is_factor;
  }

  // Whether the layer can add dx to a matrix for nothing, as a product does.
  virtual bool AddsGradient() const { return false; }
  // Has it do so in the next Backward(), which returns `sum`; without data,
  // not.
  void AddGradientTo(Matrix sum) { gradient_sum_ = sum; }

  // The layer's value at `x` [examples, inputs], under `parameters`, one for
  // each of variables(). [examples, outputs]; it stays until the next
  // Forward(). Errors: those of the backend; INVALID_ARGUMENT, with the layer's
  // name, when the pass lacks what the layer needs.
  virtual absl::StatusOr<ConstMatrix> Forward(
      const Pass& pass, absl::Span<const ConstMatrix> parameters,
      ConstMatrix x) = 0;

  // The chain rule. From `x` and `y`, of the last Forward(), whose pass was a
  // training pass and is still under way, and `dy`, the gradient of the mean
  // loss by y, makes the gradients by the variables, for
  // `sink` in reverse order of variables() and each as early as possible, and
  // then, if `want_dx`, that by x, which it returns. dy is that behind a relu,
  // but before it where the pass had an addend. It may be overwritten, unless
  // the layer takes an addend. Errors: those of the backend and of `sink`.
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

// A layer's variable of float32.
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

// `given`, or by default glorot, uniform.
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

// INVALID_ARGUMENT, of the layer `name`: `what` is wrong.
template <typename... What>
absl::Status LayerError(const std::string& name, const What&... what) {
  return absl::InvalidArgumentError(
      absl::StrCat("layer \"", name, "\": ", what...));
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_LAYER_H_
