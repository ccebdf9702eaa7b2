// SPDX-License-Identifier: Apache-2.0
#include "worker/model/layers/dense.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

// y = x W + b, with x [m, inputs], W [inputs, units], b [1, units];
// dW = x^T dy, db = sum of dy's rows, dx = dy W^T.
class Dense final : public Layer {
 public:
  Dense(Backend* backend, int64_t inputs, int64_t units,
        std::vector<proto::Variable> variables)
      : Layer(backend, {units}, std::move(variables)),
        inputs_(inputs),
        units_(units) {}

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
        ReserveProduct(x.rows, units_, HasBias() ? Use::kAny : use_of_y(),
                       &output_));
    backend_->MatMul(Form::kPlain, x, Form::kPlain, parameters[kKernel], y);
    if (HasBias()) backend_->AddBias(parameters[kBias], y);
    return y;
  }

  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix> parameters,
                                  ConstMatrix x, ConstMatrix, Matrix dy,
                                  bool want_dx, GradientSink sink) override {
    absl::Status status;
    if (HasBias()) {
      HOLDFAST_ASSIGN_OR_RETURN(
          const auto db,
          backend_->ReserveFor(sink.Memory(kBias), 1, units_, &bias_gradient_));
      backend_->SumRows(dy, db);
      status = sink(kBias, db);
      if (!status.ok()) return status;
    }
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto dw, backend_->ReserveFor(sink.Memory(kKernel), inputs_,
                                            units_, &kernel_gradient_));
    backend_->MatMul(Form::kTransposed, x, Form::kPlain, dy, dw);
    status = sink(kKernel, dw);
    if (!status.ok()) return status;
    if (!want_dx) return Matrix{};
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto dx,
        ReserveProduct(x.rows, inputs_, use_of_dx(), &input_gradient_));
    backend_->MatMul(Form::kPlain, dy, Form::kTransposed, parameters[kKernel],
                     dx);
    return dx;
  }

 private:
  // Indices in variables().
  static constexpr int kKernel = 0;
  static constexpr int kBias = 1;

  bool HasBias() const { return variables().size() > kBias; }

  const int64_t inputs_;
  const int64_t units_;
  DeviceBuffer output_;
  DeviceBuffer input_gradient_;
  DeviceBuffer kernel_gradient_;
  DeviceBuffer bias_gradient_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateDense(
    const proto::Layer::Dense& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend) {
  if (input_shape.size() != 1) {
    return LayerError(name,
                      "a dense layer takes vectors, but its input has the "
                      "shape ",
                      ShapeString(input_shape),
                      "; put a flatten layer before it");
  }
  const int64_t inputs = input_shape[0];
  const int64_t units = config.units();
  if (units < 1 || units > kMaxDimension) {
    return LayerError(name, "units is ", units, ", but must be 1 to ",
                      kMaxDimension);
  }
  std::vector<proto::Variable> variables = {
      MakeVariable(absl::StrCat(name, "/kernel"), {inputs, units},
                   KernelInitializer(config.has_kernel_initializer(),
                                     config.kernel_initializer()))};
  if (!config.has_use_bias() || config.use_bias()) {
    variables.push_back(
        MakeVariable(absl::StrCat(name, "/bias"), {units},
                     BiasInitializer(config.has_bias_initializer(),
                                     config.bias_initializer())));
  }
  return std::make_unique<Dense>(backend, inputs, units, std::move(variables));
}

}  // namespace holdfast
