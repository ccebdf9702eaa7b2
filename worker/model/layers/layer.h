// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_LAYERS_LAYER_H_
#define HOLDFAST_WORKER_MODEL_LAYERS_LAYER_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "proto/training.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/gradient_sink.h"

namespace holdfast {

// The maximum of a dimension of a matrix that a backend takes, and of the
// number of elements of an example.
constexpr int64_t kMaxDimension = std::numeric_limits<int32_t>::max();

// What a layer may need to know about the forward pass that it takes part in.
struct Pass {
  // Whether gradients are computed.
  bool training = false;
  // Batch::positions. Stays valid until the pass is over, including its
  // backward pass.
  absl::Span<const int64_t> positions;
  // What the layer must do to its output, if TakesAddend() or TakesRelu():
  // first it adds `addend`, if that has data; then, if `relu`, negative values
  // become 0.
  ConstMatrix addend;
  bool relu = false;
  // Brings the parameters of a layer, which are given as a part of the pass's
  // parameters, to the backend. A chain calls it before each of its layers
  // computes. Null: all parameters are there.
  using Bring =
      absl::FunctionRef<absl::Status(absl::Span<const ConstMatrix> parameters)>;
  const Bring* bring = nullptr;
};

// What a layer uses the values of a neighbour for:
//
//   kAny        in operations that need float32 values, or for purposes unknown
//   kProducts   only as factors of products, which round them anyway, so that
//               rounded values alone give the same bits
//   kRounded    only in operations that also take matrices with rounded values
//               alone (ConstMatrix::rounded_alone)
enum class Use { kAny, kProducts, kRounded };

// One function in a Chain, with those of the model's variables that it uses. A
// shape describes one example; a batch is a matrix with one example per row.
//
// Thread-compatible. Reuses the memory of its results from batch to batch, and
// allocates only if a batch is larger than all before it.
class Layer {
 public:
  // Takes the gradient of one of the layer's variables, in row-major order;
  // `variable` is the index in variables(). The gradient stays valid until the
  // next Backward(), unless it is in the sink's own memory
  // (Backend::ReserveFor), which the sink manages. The sink may change the
  // gradient, except that of a variable that is a moving average, which is the
  // variable's new value.
  using GradientSink = GradientSinkOf<absl::Status, Matrix>;

  virtual ~Layer() = default;

  // The layer's variables. In the job's declaration their names have "<layer>/"
  // before them.
  const std::vector<proto::Variable>& variables() const { return variables_; }
  const std::vector<int64_t>& output_shape() const { return output_shape_; }

  // Whether the layer can apply Pass::relu, and whether it can apply
  // Pass::addend. Both are bound by memory bandwidth, and a layer whose last
  // operation writes its output anyway can apply them at no extra cost.
  virtual bool TakesRelu() const { return false; }
  virtual bool TakesAddend() const { return false; }

  // What the layer uses x for, and what it uses dy for.
  virtual Use UseOfInput() const { return Use::kAny; }
  virtual Use UseOfGradient() const { return Use::kAny; }

  // Tells the layer what the next layer uses this layer's y for, and what the
  // previous layer uses this layer's dx for. By default both are kAny.
  virtual void TellUseOfOutput(Use use) { use_of_y_ = use; }
  void TellUseOfInputGradient(Use use) { use_of_dx_ = use; }

  // Whether the layer can add dx to a matrix at no extra cost, which it can if
  // a product computes dx.
  virtual bool AddsGradient() const { return false; }
  // Makes the next Backward() add dx to `sum` and return `sum`. If `sum` has no
  // data, undoes an earlier call.
  void AddGradientTo(Matrix sum) { gradient_sum_ = sum; }

  // Computes the layer's output [examples, outputs] for `x` [examples, inputs].
  // Uses `parameters`, which has one matrix for each of variables(). The output
  // stays valid until the next Forward(). Errors: those of the backend;
  // INVALID_ARGUMENT, with the layer's name, when the pass lacks what the layer
  // needs.
  virtual absl::StatusOr<ConstMatrix> Forward(
      const Pass& pass, absl::Span<const ConstMatrix> parameters,
      ConstMatrix x) = 0;

  // Applies the chain rule. `x` and `y` are the argument and the result of the
  // last Forward(), which must belong to a training pass that is still under
  // way, and `dy` is the gradient of the mean loss with respect to y. Computes
  // the gradients of the variables, and gives them to `sink` in reverse order
  // of variables(), each as early as possible. Then, if `want_dx`, computes and
  // returns dx, the gradient with respect to x. If the pass had both a relu and
  // an addend, `dy` is the gradient before the relu: with respect to the sum to
  // which the relu was applied. May overwrite `dy`, unless TakesAddend().
  // Errors: those of the backend and of `sink`.
  virtual absl::StatusOr<Matrix> Backward(
      absl::Span<const ConstMatrix> parameters, ConstMatrix x, ConstMatrix y,
      Matrix dy, bool want_dx, GradientSink sink) = 0;

 protected:
  Layer(Backend* backend, std::vector<int64_t> output_shape,
        std::vector<proto::Variable> variables)
      : backend_(backend),
        output_shape_(std::move(output_shape)),
        variables_(std::move(variables)) {}

  Use use_of_y() const { return use_of_y_; }
  Use use_of_dx() const { return use_of_dx_; }
  Matrix gradient_sum() const { return gradient_sum_; }

  // Reserves room for the result of a product. Errors: those of
  // Backend::Reserve.
  absl::StatusOr<Matrix> ReserveProduct(int64_t rows, int64_t cols, Use use,
                                        DeviceBuffer* buffer) {
    if (use == Use::kRounded) {
      return backend_->ReserveRounded(rows, cols, buffer);
    }
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(rows * cols, buffer));
    return buffer->View(rows, cols);
  }

  Backend* const backend_;

 private:
  const std::vector<int64_t> output_shape_;
  const std::vector<proto::Variable> variables_;
  Use use_of_y_ = Use::kAny;
  Use use_of_dx_ = Use::kAny;
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

// Returns `given` if `is_given`, otherwise glorot with a uniform distribution.
inline proto::Initializer KernelInitializer(bool is_given,
                                            const proto::Initializer& given) {
  if (is_given) return given;
  proto::Initializer glorot;
  glorot.mutable_glorot()->set_distribution(proto::Initializer::UNIFORM);
  return glorot;
}

// Returns `given` if `is_given`, otherwise zeros.
inline proto::Initializer BiasInitializer(bool is_given,
                                          const proto::Initializer& given) {
  if (is_given) return given;
  proto::Initializer zeros;
  zeros.mutable_zeros();
  return zeros;
}

// Returns INVALID_ARGUMENT with the layer's name and `what`, which says what is
// wrong.
template <typename... What>
absl::Status LayerError(const std::string& name, const What&... what) {
  return absl::InvalidArgumentError(
      absl::StrCat("layer \"", name, "\": ", what...));
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_LAYER_H_
