// SPDX-License-Identifier: Apache-2.0
#include "worker/model/layers/elementwise.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

// A matrix already combines all dimensions of a tensor but the first, so
// nothing is computed: only what later layers take the columns for changes.
class ReshapeLayer final : public Layer {
 public:
  ReshapeLayer(Backend* backend, std::vector<int64_t> shape)
      : Layer(backend, std::move(shape), {}) {}

  absl::StatusOr<ConstMatrix> Forward(const Pass&,
                                      absl::Span<const ConstMatrix>,
                                      ConstMatrix x) override {
    return x;
  }

  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix>, ConstMatrix,
                                  ConstMatrix, Matrix dy, bool,
                                  GradientSink) override {
    return dy;
  }
};

// An elementwise function whose derivative follows from its value. The template
// arguments are the members of Backend that compute y from x, and dx from y and
// dy, in place.
template <auto function, auto gradient>
class Elementwise final : public Layer {
 public:
  Elementwise(Backend* backend, absl::Span<const int64_t> shape)
      : Layer(backend, {shape.begin(), shape.end()}, {}) {}

  absl::StatusOr<ConstMatrix> Forward(const Pass&,
                                      absl::Span<const ConstMatrix>,
                                      ConstMatrix x) override {
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(x.size(), &output_));
    const Matrix y = output_.View(x.rows, x.cols);
    (backend_->*function)(x, y);
    return y;
  }

  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix>, ConstMatrix,
                                  ConstMatrix y, Matrix dy, bool want_dx,
                                  GradientSink) override {
    if (want_dx) (backend_->*gradient)(y, dy, dy);
    return dy;
  }

 private:
  DeviceBuffer output_;
};

// y = x, or in training y = mask x and dx = mask dy, with a mask that is not
// kept but computed again.
class DropoutLayer final : public Layer {
 public:
  DropoutLayer(Backend* backend, absl::Span<const int64_t> shape,
               const std::string& name, float rate, uint64_t key)
      : Layer(backend, {shape.begin(), shape.end()}, {}),
        name_(name),
        rate_(rate),
        key_(key) {}

  absl::StatusOr<ConstMatrix> Forward(const Pass& pass,
                                      absl::Span<const ConstMatrix>,
                                      ConstMatrix x) override {
    if (!pass.training || rate_ == 0) return x;
    if (pass.positions.empty()) {
      return LayerError(
          name_,
          "which values are dropped in training follows from the examples' "
          "places in the training stream, but the batch has no positions");
    }
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(x.size(), &output_));
    const Matrix y = output_.View(x.rows, x.cols);
    positions_ = pass.positions;
    backend_->Dropout(x, positions_, key_, rate_, y);
    return y;
  }

  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix>, ConstMatrix,
                                  ConstMatrix, Matrix dy, bool want_dx,
                                  GradientSink) override {
    if (want_dx && rate_ > 0) {
      backend_->Dropout(dy, positions_, key_, rate_, dy);
    }
    return dy;
  }

 private:
  const std::string name_;
  const float rate_;
  const uint64_t key_;
  // The positions of the pass under way.
  absl::Span<const int64_t> positions_;
  DeviceBuffer output_;
};

}  // namespace

std::unique_ptr<Layer> CreateFlatten(int64_t size, Backend* backend) {
  return std::make_unique<ReshapeLayer>(backend, std::vector<int64_t>{size});
}

absl::StatusOr<std::unique_ptr<Layer>> CreateReshape(
    const proto::Layer::Reshape& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto before, NumElements(input_shape));
  const absl::StatusOr<int64_t> after = NumElements(config.shape());
  if (!after.ok() || *after != before) {
    return LayerError(name, "its shape ", ShapeString(config.shape()),
                      " must have the ", before,
                      " values of its input, whose shape is ",
                      ShapeString(input_shape));
  }
  return std::make_unique<ReshapeLayer>(
      backend,
      std::vector<int64_t>(config.shape().begin(), config.shape().end()));
}

std::unique_ptr<Layer> CreateRelu(absl::Span<const int64_t> shape,
                                  Backend* backend) {
  return std::make_unique<Elementwise<&Backend::Relu, &Backend::ReluGradient>>(
      backend, shape);
}

std::unique_ptr<Layer> CreateTanh(absl::Span<const int64_t> shape,
                                  Backend* backend) {
  return std::make_unique<Elementwise<&Backend::Tanh, &Backend::TanhGradient>>(
      backend, shape);
}

std::unique_ptr<Layer> CreateSigmoid(absl::Span<const int64_t> shape,
                                     Backend* backend) {
  return std::make_unique<
      Elementwise<&Backend::Sigmoid, &Backend::SigmoidGradient>>(backend,
                                                                 shape);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateDropout(
    const proto::Layer::Dropout& config, const std::string& name,
    absl::Span<const int64_t> shape, uint64_t key, Backend* backend) {
  // Written so that NaN is an error too.
  if (!(config.rate() >= 0 && config.rate() < 1)) {
    return LayerError(name, "rate is ", config.rate(),
                      ", but must be at least 0 and below 1");
  }
  return std::make_unique<DropoutLayer>(backend, shape, name, config.rate(),
                                        key);
}

}  // namespace holdfast
