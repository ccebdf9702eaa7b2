// SPDX-License-Identifier: Apache-2.0
#include "worker/model/layers/convolution.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/model/layers/image_shape.h"

namespace holdfast {
namespace {

class Conv2d final : public Layer {
 public:
  Conv2d(Backend* backend, const Convolution& convolution,
         std::vector<proto::Variable> variables)
      : Layer(backend,
              {convolution.window.output_height,
               convolution.window.output_width, convolution.filters},
              std::move(variables)),
        convolution_(convolution) {}

  // If a window sees one pixel and all its channels, the gradient with respect
  // to x is a matrix product with one row per position.
  bool AddsGradient() const override {
    const Window& window = convolution_.window;
    return window.window_size() == 1 && window.stride_height == 1 &&
           window.stride_width == 1 && convolution_.groups == 1;
  }
  Use UseOfInput() const override { return Use::kProducts; }
  Use UseOfGradient() const override {
    return HasBias() ? Use::kAny : Use::kProducts;
  }

  absl::StatusOr<ConstMatrix> Forward(const Pass&,
                                      absl::Span<const ConstMatrix> parameters,
                                      ConstMatrix x) override {
    // A bias is added in float32.
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto y,
        ReserveProduct(x.rows, convolution_.output_size(),
                       HasBias() ? Use::kAny : use_of_y(), &output_));
    HOLDFAST_RETURN_IF_ERROR(
        backend_->Convolve(convolution_, x, AsMatrix(parameters[kKernel]), y));
    if (HasBias()) backend_->AddBias(parameters[kBias], ByPlace(y));
    return y;
  }

  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix> parameters,
                                  ConstMatrix x, ConstMatrix, Matrix dy,
                                  bool want_dx, GradientSink sink) override {
    absl::Status status;
    if (HasBias()) {
      HOLDFAST_ASSIGN_OR_RETURN(
          const auto db,
          backend_->ReserveFor(sink.Memory(kBias), 1, convolution_.filters,
                               &bias_gradient_));
      backend_->SumRows(ByPlace(dy), db);
      status = sink(kBias, db);
      if (!status.ok()) return status;
    }
    const int64_t rows = convolution_.kernel_rows();
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto dk,
        backend_->ReserveFor(sink.Memory(kKernel), rows, convolution_.filters,
                             &kernel_gradient_));
    status = backend_->ConvolveKernelGradient(convolution_, x, dy, dk);
    if (!status.ok()) return status;
    status = sink(kKernel, dk);
    if (!status.ok()) return status;
    if (!want_dx) return Matrix{};
    if (const Matrix sum = gradient_sum(); sum.data != nullptr) {
      AddGradientTo({});
      backend_->AddMatMul(Form::kPlain, ByPlace(dy), Form::kTransposed,
                          AsMatrix(parameters[kKernel]),
                          {sum.data, sum.size() / convolution_.window.channels,
                           convolution_.window.channels});
      return sum;
    }
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto dx,
        ReserveProduct(x.rows, x.cols, use_of_dx(), &input_gradient_));
    status = backend_->ConvolveInputGradient(
        convolution_, AsMatrix(parameters[kKernel]), dy, dx);
    if (!status.ok()) return status;
    return dx;
  }

 private:
  // Indices in variables().
  static constexpr int kKernel = 0;
  static constexpr int kBias = 1;

  bool HasBias() const { return variables().size() > kBias; }

  // Returns the kernel, a matrix whose first dimension is its height alone, in
  // the shape that the backend takes.
  ConstMatrix AsMatrix(ConstMatrix kernel) const {
    return {kernel.data, convolution_.kernel_rows(), convolution_.filters};
  }
  // Returns images as a matrix with one row per position.
  Matrix ByPlace(Matrix y) const {
    return {y.data, y.rows * convolution_.window.output_places(),
            convolution_.filters, y.rounded, y.rounded_alone};
  }

  const Convolution convolution_;
  DeviceBuffer output_;
  DeviceBuffer input_gradient_;
  DeviceBuffer kernel_gradient_;
  DeviceBuffer bias_gradient_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateConv2d(
    const proto::Layer::Conv2d& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto shape,
                            ImageShapeOf(input_shape, "a conv2d layer", name));
  if (config.kernel_size().empty()) {
    return LayerError(name, "has no kernel_size");
  }
  const auto size = ExtentOf(config.kernel_size(), {}, "kernel_size", name);
  if (!size.ok()) return size.status();
  const auto stride = ExtentOf(config.stride(), {}, "stride", name);
  if (!stride.ok()) return stride.status();
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto window,
      MakeWindow(shape, *size, *stride, config.padding(), name));

  Convolution convolution;
  convolution.window = window;
  convolution.filters = config.filters();
  convolution.groups = config.has_groups() ? config.groups() : 1;
  if (convolution.filters < 1) {
    return LayerError(name, "filters is 0, but must be at least 1");
  }
  if (convolution.groups < 1 || convolution.filters % convolution.groups != 0 ||
      shape.channels % convolution.groups != 0) {
    return LayerError(name, "groups is ", convolution.groups,
                      ", but must divide the channels of its input, ",
                      shape.channels, ", and its filters, ",
                      convolution.filters);
  }
  if (window.output_places() > kMaxDimension / convolution.filters ||
      size->height > kMaxDimension / size->width ||
      shape.channels / convolution.groups >
          kMaxDimension / (size->height * size->width)) {
    return LayerError(name, "its output or a filter would have more than ",
                      kMaxDimension, " values");
  }
  std::vector<proto::Variable> variables = {
      MakeVariable(absl::StrCat(name, "/kernel"),
                   {size->height, size->width,
                    shape.channels / convolution.groups, convolution.filters},
                   KernelInitializer(config.has_kernel_initializer(),
                                     config.kernel_initializer()))};
  if (!config.has_use_bias() || config.use_bias()) {
    variables.push_back(
        MakeVariable(absl::StrCat(name, "/bias"), {convolution.filters},
                     BiasInitializer(config.has_bias_initializer(),
                                     config.bias_initializer())));
  }
  return std::make_unique<Conv2d>(backend, convolution, std::move(variables));
}

}  // namespace holdfast
