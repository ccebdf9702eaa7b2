// SPDX-License-Identifier: Apache-2.0
#include "worker/model/layers/pooling.h"

#include <vector>

#include "common/base/status_macros.h"
#include "worker/model/layers/image_shape.h"

namespace holdfast {
namespace {

// A function of the pixels that a window sees at each position.
class Pool : public Layer {
 public:
  Pool(Backend* backend, const Window& window, std::vector<int64_t> shape)
      : Layer(backend, std::move(shape), {}), window_(window) {}

  absl::StatusOr<ConstMatrix> Forward(const Pass&,
                                      absl::Span<const ConstMatrix>,
                                      ConstMatrix x) final {
    const int64_t outputs = window_.output_places() * window_.channels;
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(x.rows * outputs, &output_));
    const Matrix y = output_.View(x.rows, outputs);
    Compute(x, y);
    return y;
  }

  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix>, ConstMatrix x,
                                  ConstMatrix y, Matrix dy, bool want_dx,
                                  GradientSink) final {
    if (!want_dx) return Matrix{};
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(x.size(), &input_gradient_));
    const Matrix dx = input_gradient_.View(x.rows, x.cols);
    ComputeGradient(x, y, dy, dx);
    return dx;
  }

 protected:
  const Window window_;

 private:
  virtual void Compute(ConstMatrix x, Matrix y) = 0;
  virtual void ComputeGradient(ConstMatrix x, ConstMatrix y, ConstMatrix dy,
                               Matrix dx) = 0;

  DeviceBuffer output_;
  DeviceBuffer input_gradient_;
};

class MaxPool final : public Pool {
 public:
  using Pool::Pool;

 private:
  void Compute(ConstMatrix x, Matrix y) override {
    backend_->MaxPool(window_, x, y);
  }
  void ComputeGradient(ConstMatrix x, ConstMatrix y, ConstMatrix dy,
                       Matrix dx) override {
    backend_->MaxPoolGradient(window_, x, y, dy, dx);
  }
};

class AveragePool final : public Pool {
 public:
  using Pool::Pool;

 private:
  void Compute(ConstMatrix x, Matrix y) override {
    backend_->AveragePool(window_, x, y);
  }
  void ComputeGradient(ConstMatrix, ConstMatrix, ConstMatrix dy,
                       Matrix dx) override {
    backend_->AveragePoolGradient(window_, dy, dx);
  }
};

// Creates a pooling layer of any kind; their configs have the same fields.
template <typename PoolKind, typename Config>
absl::StatusOr<std::unique_ptr<Layer>> CreatePool(
    const Config& config, const char* kind, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto shape,
                            ImageShapeOf(input_shape, kind, name));
  if (config.size().empty()) return LayerError(name, "has no size");
  const auto size = ExtentOf(config.size(), {}, "size", name);
  if (!size.ok()) return size.status();
  HOLDFAST_ASSIGN_OR_RETURN(const auto stride,
                            ExtentOf(config.stride(), *size, "stride", name));
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto window,
      MakeWindow(shape, *size, stride, config.padding(), name));
  return std::make_unique<PoolKind>(
      backend, window,
      std::vector<int64_t>{window.output_height, window.output_width,
                           window.channels});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateMaxPool2d(
    const proto::Layer::MaxPool2d& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend) {
  return CreatePool<MaxPool>(config, "a max_pool2d layer", name, input_shape,
                             backend);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateAveragePool2d(
    const proto::Layer::AveragePool2d& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend) {
  return CreatePool<AveragePool>(config, "an average_pool2d layer", name,
                                 input_shape, backend);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateGlobalAveragePool2d(
    const std::string& name, absl::Span<const int64_t> input_shape,
    Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto shape,
      ImageShapeOf(input_shape, "a global_average_pool2d layer", name));
  const auto window = MakeWindow(shape, {shape.height, shape.width}, {1, 1},
                                 proto::Layer::VALID, name);
  if (!window.ok()) return window.status();
  return std::make_unique<AveragePool>(backend, *window,
                                       std::vector<int64_t>{shape.channels});
}

}  // namespace holdfast
