// SPDX-License-Identifier: Apache-2.0
#include "worker/model/layers/normalization.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/model/layers/image_shape.h"

namespace holdfast {
namespace {

// As in Keras.
constexpr float kDefaultEpsilon = 1e-3f;
constexpr float kDefaultMomentum = 0.99f;

// Indices in variables() of the scale and offset that follow a normalisation.
constexpr int kScale = 0;
constexpr int kOffset = 1;

std::vector<proto::Variable> ScaleAndOffset(const std::string& name,
                                            int64_t channels) {
  proto::Initializer ones;
  ones.mutable_constant()->set_value(1);
  proto::Initializer zeros;
  zeros.mutable_zeros();
  return {MakeVariable(absl::StrCat(name, "/scale"), {channels}, ones),
          MakeVariable(absl::StrCat(name, "/offset"), {channels}, zeros)};
}

// The number of values of a vector, or of a pixel of an image.
// Errors: INVALID_ARGUMENT, with the layer's name, when `shape` is neither.
absl::StatusOr<int64_t> ChannelsOf(absl::Span<const int64_t> shape,
                                   const char* kind, const std::string& name) {
  if (shape.size() == 1) return shape[0];
  HOLDFAST_ASSIGN_OR_RETURN(const auto image, ImageShapeOf(shape, kind, name));
  return image.channels;
}

// x with one row for every `channels` adjacent values.
template <typename AnyMatrix>
AnyMatrix ByChannels(AnyMatrix x, int64_t channels) {
  return {x.data, x.size() / channels, channels, x.rounded, x.rounded_alone};
}

class LayerNorm final : public Layer {
 public:
  LayerNorm(Backend* backend, absl::Span<const int64_t> shape, int64_t channels,
            float epsilon, const std::string& name)
      : Layer(backend, {shape.begin(), shape.end()},
              ScaleAndOffset(name, channels)),
        channels_(channels),
        epsilon_(epsilon) {}

  absl::StatusOr<ConstMatrix> Forward(const Pass&,
                                      absl::Span<const ConstMatrix> parameters,
                                      ConstMatrix x) override {
    const ConstMatrix rows = ByChannels(x, channels_);
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(2 * rows.rows, &moments_));
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(x.size(), &output_));
    const Matrix y = output_.View(x.rows, x.cols);
    backend_->NormalizeRows(rows, epsilon_, parameters[kScale],
                            parameters[kOffset], moments_.View(rows.rows, 2),
                            ByChannels(y, channels_));
    return y;
  }

  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix> parameters,
                                  ConstMatrix x, ConstMatrix, Matrix dy,
                                  bool want_dx, GradientSink sink) override {
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(channels_, &scale_gradient_));
    HOLDFAST_RETURN_IF_ERROR(backend_->Reserve(channels_, &offset_gradient_));
    const Matrix dscale = scale_gradient_.View(1, channels_);
    const Matrix doffset = offset_gradient_.View(1, channels_);
    const ConstMatrix rows = ByChannels(x, channels_);
    Matrix dx = ByChannels(dy, channels_);
    if (!want_dx) dx.data = nullptr;
    backend_->NormalizeRowsGradient(
        rows, parameters[kScale], moments_.View(rows.rows, 2),
        ByChannels(dy, channels_), dscale, doffset, dx);
    HOLDFAST_RETURN_IF_ERROR(sink(kOffset, doffset));
    HOLDFAST_RETURN_IF_ERROR(sink(kScale, dscale));
    return dy;
  }

 private:
  const int64_t channels_;
  const float epsilon_;
  DeviceBuffer output_;
  DeviceBuffer moments_;
  DeviceBuffer scale_gradient_;
  DeviceBuffer offset_gradient_;
};

class BatchNorm final : public Layer {
 public:
  BatchNorm(Backend* backend, absl::Span<const int64_t> shape, int64_t channels,
            float epsilon, std::vector<proto::Variable> variables)
      : Layer(backend, {shape.begin(), shape.end()}, std::move(variables)),
        channels_(channels),
        epsilon_(epsilon) {}

  bool TakesRelu() const override { return true; }
  bool TakesAddend() const override { return true; }
  Use UseOfInput() const override { return Use::kRounded; }
  Use UseOfGradient() const override { return Use::kRounded; }

  absl::StatusOr<ConstMatrix> Forward(const Pass& pass,
                                      absl::Span<const ConstMatrix> parameters,
                                      ConstMatrix x) override {
    const ConstMatrix rows = ByChannels(x, channels_);
    ConstMatrix mean = parameters[kMovingMean];
    ConstMatrix variance = parameters[kMovingVariance];
    absl::Status status;
    if (pass.training) {
      for (DeviceBuffer* buffer : {&mean_, &variance_}) {
        status = backend_->Reserve(channels_, buffer);
        if (!status.ok()) return status;
      }
      mean = mean_.View(1, channels_);
      variance = variance_.View(1, channels_);
      backend_->ColumnMoments(rows, mean_.View(1, channels_),
                              variance_.View(1, channels_));
    }
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto y,
        use_of_y() == Use::kRounded && backend_->RoundsActivations()
            ? backend_->ReserveRounded(x.rows, x.cols, &output_)
            : backend_->ReserveFactor(x.rows, x.cols,
                                      use_of_y() == Use::kProducts, &output_));
    backend_->NormalizeColumns(
        rows,
        {mean, variance, epsilon_, parameters[kScale], parameters[kOffset]},
        ByChannels(pass.addend, channels_), pass.relu,
        ByChannels(y, channels_));
    // If there is an addend, the layer that gave it applies the relu's
    // gradient.
    relu_ = pass.relu && pass.addend.data == nullptr;
    return y;
  }

  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix> parameters,
                                  ConstMatrix x, ConstMatrix, Matrix dy,
                                  bool want_dx, GradientSink sink) override {
    const Matrix mean = mean_.View(1, channels_);
    const Matrix variance = variance_.View(1, channels_);
    absl::Status status = sink(kMovingVariance, variance);
    if (!status.ok()) return status;
    status = sink(kMovingMean, mean);
    if (!status.ok()) return status;
    for (DeviceBuffer* buffer : {&scale_gradient_, &offset_gradient_}) {
      status = backend_->Reserve(channels_, buffer);
      if (!status.ok()) return status;
    }
    const Matrix dscale = scale_gradient_.View(1, channels_);
    const Matrix doffset = offset_gradient_.View(1, channels_);
    // The layers that take y have run already, so its memory is free; dy must
    // stay unchanged.
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto dx,
        backend_->ReserveFactor(dy.rows, dy.cols, use_of_dx() == Use::kProducts,
                                &output_));
    Matrix made = ByChannels(dx, channels_);
    if (!want_dx) made.data = nullptr;
    backend_->NormalizeColumnsGradient(
        ByChannels(x, channels_),
        {mean, variance, epsilon_, parameters[kScale], parameters[kOffset]},
        relu_, ByChannels(dy, channels_), dscale, doffset, made);
    status = sink(kOffset, doffset);
    if (!status.ok()) return status;
    status = sink(kScale, dscale);
    if (!status.ok()) return status;
    return dx;
  }

  // Indices in variables(), besides those of ScaleAndOffset.
  static constexpr int kMovingMean = 2;
  static constexpr int kMovingVariance = 3;

 private:
  const int64_t channels_;
  const float epsilon_;
  // Whether, in the pass under way, dy is the gradient after a relu that this
  // layer applied.
  bool relu_ = false;
  // y in the forward pass, dx in the backward pass.
  DeviceBuffer output_;
  // From the batch of the last training pass.
  DeviceBuffer mean_;
  DeviceBuffer variance_;
  DeviceBuffer scale_gradient_;
  DeviceBuffer offset_gradient_;
};

// Errors: INVALID_ARGUMENT, with the layer's name, when it is out of range.
absl::Status CheckEpsilon(float epsilon, const std::string& name) {
  // Written so that NaN is an error too.
  if (epsilon > 0 && epsilon <= 1) return absl::OkStatus();
  return LayerError(name, "epsilon is ", epsilon,
                    ", but must be above 0 and at most 1");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateBatchNorm(
    const proto::Layer::BatchNorm& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto channels,
      ChannelsOf(input_shape, "a batch_norm layer, unless it takes vectors,",
                 name));
  const float epsilon =
      config.has_epsilon() ? config.epsilon() : kDefaultEpsilon;
  HOLDFAST_RETURN_IF_ERROR(CheckEpsilon(epsilon, name));
  const float momentum =
      config.has_momentum() ? config.momentum() : kDefaultMomentum;
  // Written so that NaN is an error too.
  if (!(momentum >= 0 && momentum < 1)) {
    return LayerError(name, "momentum is ", momentum,
                      ", but must be at least 0 and below 1");
  }
  std::vector<proto::Variable> variables = ScaleAndOffset(name, channels);
  // They have the initial values of the offset and of the scale.
  for (const auto& [moving, like] : {std::pair("/moving_mean", kOffset),
                                     std::pair("/moving_variance", kScale)}) {
    proto::Variable variable = variables[like];
    variable.set_name(absl::StrCat(name, moving));
    variable.mutable_moving_average()->set_momentum(momentum);
    variables.push_back(std::move(variable));
  }
  return std::make_unique<BatchNorm>(backend, input_shape, channels, epsilon,
                                     std::move(variables));
}

absl::StatusOr<std::unique_ptr<Layer>> CreateLayerNorm(
    const proto::Layer::LayerNorm& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend) {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto channels,
      ChannelsOf(input_shape, "a layer_norm layer, unless it takes vectors,",
                 name));
  if (channels == 1) {
    return LayerError(name,
                      "a layer_norm layer normalises over the channels, but "
                      "its input has only one: every value would become 0");
  }
  const float epsilon =
      config.has_epsilon() ? config.epsilon() : kDefaultEpsilon;
  HOLDFAST_RETURN_IF_ERROR(CheckEpsilon(epsilon, name));
  return std::make_unique<LayerNorm>(backend, input_shape, channels, epsilon,
                                     name);
}

}  // namespace holdfast
