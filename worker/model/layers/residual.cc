// SPDX-License-Identifier: Apache-2.0
#include "worker/model/layers/residual.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tensor/shape.h"
#include "worker/model/layers/chain.h"

namespace holdfast {
namespace {

// y = f(x) + g(x), with f the body and g the shortcut.
class Residual final : public Layer {
 public:
  Residual(Backend* backend, std::vector<proto::Variable> variables,
           std::unique_ptr<Chain> body, std::unique_ptr<Chain> shortcut)
      : Layer(backend, body->output_shape(), std::move(variables)),
        body_(std::move(body)),
        shortcut_(std::move(shortcut)) {
    if (body_->TakesAddend()) shortcut_->TellUseOfOutput(Use::kRounded);
  }

  bool TakesRelu() const override { return true; }
  Use UseOfInput() const override {
    const Use of_sum = body_->TakesAddend() ? Use::kRounded : Use::kAny;
    return body_->UseOfInput(of_sum) != Use::kAny &&
                   shortcut_->UseOfInput(of_sum) != Use::kAny
               ? Use::kRounded
               : Use::kAny;
  }
  void TellUseOfOutput(Use use) override {
    // Besides the next layer, the gradient of a relu uses y.
    if (body_->TakesAddend() && use != Use::kAny) {
      body_->TellUseOfOutput(Use::kRounded);
    }
  }

  absl::StatusOr<ConstMatrix> Forward(const Pass& pass,
                                      absl::Span<const ConstMatrix> parameters,
                                      ConstMatrix x) override {
    relu_ = pass.relu;
    const Pass within = {pass.training, pass.positions, {}, false};
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto g, shortcut_->Forward(within, OfShortcut(parameters), x));
    if (body_->TakesAddend()) {
      Pass with_shortcut = within;
      with_shortcut.addend = g;
      with_shortcut.relu = relu_;
      return body_->Forward(with_shortcut, OfBody(parameters), x);
    }
    HOLDFAST_ASSIGN_OR_RETURN(const auto f,
                              body_->Forward(within, OfBody(parameters), x));
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(f.size(), &output_));
    const Matrix y = output_.View(f.rows, f.cols);
    backend_->Add(f, g, y);
    if (relu_) backend_->Relu(y, y);
    return y;
  }

  // dx = f'(x) dy + g'(x) dy.
  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix> parameters,
                                  ConstMatrix, ConstMatrix y, Matrix dy,
                                  bool want_dx, GradientSink sink) override {
    if (relu_) {
      backend_->ReluGradient(y, dy, dy);
      dy.rounded = nullptr;
    }
    Matrix for_shortcut = dy;
    if (!shortcut_->KeepsGradient() || !body_->KeepsGradient()) {
      HOLDFAST_RETURN_IF_ERROR(
          backend_->Reserve(dy.size(), &shortcut_gradient_));
      for_shortcut = shortcut_gradient_.View(dy.rows, dy.cols);
      backend_->Copy(dy, for_shortcut);
    }
    const int body_variables = body_->variables().size();
    const auto take = [&](int variable, Matrix gradient) {
      return sink(body_variables + variable, gradient);
    };
    const auto memory_of = [&](int variable) {
      return sink.Memory(body_variables + variable);
    };
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto dg,
        shortcut_->Backward(OfShortcut(parameters), for_shortcut, want_dx,
                            GradientSink(take, memory_of)));
    const bool adds = want_dx && body_->AddsGradient();
    if (adds) body_->AddGradientTo({dg.data, dg.rows, dg.cols});
    const absl::StatusOr<Matrix> df =
        body_->Backward(OfBody(parameters), dy, want_dx, sink);
    if (!df.ok() || !want_dx || adds) return df;
    backend_->Add(*df, dg, *df);
    return Matrix{df->data, df->rows, df->cols};
  }

 private:
  absl::Span<const ConstMatrix> OfBody(
      absl::Span<const ConstMatrix> parameters) const {
    return parameters.first(body_->variables().size());
  }
  absl::Span<const ConstMatrix> OfShortcut(
      absl::Span<const ConstMatrix> parameters) const {
    return parameters.subspan(body_->variables().size());
  }

  const std::unique_ptr<Chain> body_;
  const std::unique_ptr<Chain> shortcut_;
  // Whether the pass under way has a relu.
  bool relu_ = false;
  DeviceBuffer output_;
  DeviceBuffer shortcut_gradient_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateResidual(
    const proto::Layer::Residual& config, const std::string& name,
    absl::Span<const int64_t> input_shape, uint64_t key, Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(
      auto body, Chain::Create(config.layers(), absl::StrCat(name, "/"),
                               input_shape, key, /*first_place=*/0, backend));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto shortcut,
      Chain::Create(config.shortcut(), absl::StrCat(name, "/shortcut/"),
                    input_shape, key, config.layers_size(), backend));
  if (body->output_shape() != shortcut->output_shape()) {
    return LayerError(
        name, "its layers make the shape ", ShapeString(body->output_shape()),
        " from ", ShapeString(input_shape), ", its shortcut ",
        ShapeString(shortcut->output_shape()),
        "; they must be the same: as a shortcut, a conv2d with kernel_size: 1 "
        "can change the channels, and with a stride the size");
  }
  std::vector<proto::Variable> variables = body->variables();
  variables.insert(variables.end(), shortcut->variables().begin(),
                   shortcut->variables().end());
  return std::make_unique<Residual>(backend, std::move(variables),
                                    std::move(body), std::move(shortcut));
}

}  // namespace holdfast
