#include "worker/model/layers.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/shape.h"

namespace holdfast {
namespace {

// Dimensions that the backend takes.
constexpr int64_t kMaxDimension = std::numeric_limits<int32_t>::max();

// As matrices, tensors have all but their first dimension in one already.
class Flatten final : public Layer {
 public:
  Flatten(Backend* backend, int64_t size) : Layer(backend, {size}, {}) {}

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

// A function of each element by itself, whose derivative follows from its
// value: members of Backend that make y of x, and dx of y and dy, in place.
template <auto function, auto gradient>
class Elementwise final : public Layer {
 public:
  Elementwise(Backend* backend, absl::Span<const int64_t> shape)
      : Layer(backend, {shape.begin(), shape.end()}, {}) {}

  absl::StatusOr<ConstMatrix> Forward(const Pass&,
                                      absl::Span<const ConstMatrix>,
                                      ConstMatrix x) override {
    absl::Status status = backend_->Reserve(x.size(), &output_);
    if (!status.ok()) return status;
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

using Relu = Elementwise<&Backend::Relu, &Backend::ReluGradient>;
using Tanh = Elementwise<&Backend::Tanh, &Backend::TanhGradient>;
using Sigmoid = Elementwise<&Backend::Sigmoid, &Backend::SigmoidGradient>;

// y = x, or in training y = mask x and dx = mask dy, with a mask that is not
// kept but made again.
class Dropout final : public Layer {
 public:
  Dropout(Backend* backend, absl::Span<const int64_t> shape,
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
      return absl::InvalidArgumentError(absl::StrCat(
          "layer \"", name_,
          "\": which values are dropped in training follows ",
          "from the examples' places in the training stream, but the batch ",
          "has no positions"));
    }
    absl::Status status = backend_->Reserve(x.size(), &output_);
    if (!status.ok()) return status;
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
  // Of the pass under way.
  absl::Span<const int64_t> positions_;
  DeviceBuffer output_;
};

// y = x W + b, with x [m, inputs], W [inputs, units], b [1, units];
// dW = x^T dy, db = sum of dy's rows, dx = dy W^T.
class Dense final : public Layer {
 public:
  Dense(Backend* backend, int64_t inputs, int64_t units,
        std::vector<proto::Variable> variables)
      : Layer(backend, {units}, std::move(variables)),
        inputs_(inputs),
        units_(units) {}

  absl::StatusOr<ConstMatrix> Forward(const Pass&,
                                      absl::Span<const ConstMatrix> parameters,
                                      ConstMatrix x) override {
    absl::Status status = backend_->Reserve(x.rows * units_, &output_);
    if (!status.ok()) return status;
    const Matrix y = output_.View(x.rows, units_);
    backend_->MatMul(Form::kPlain, x, Form::kPlain, parameters[kKernel], y);
    if (HasBias()) backend_->AddBias(parameters[kBias], y);
    return y;
  }

  absl::StatusOr<Matrix> Backward(absl::Span<const ConstMatrix> parameters,
                                  ConstMatrix x, ConstMatrix, Matrix dy,
                                  bool want_dx, GradientSink sink) override {
    absl::Status status;
    if (HasBias()) {
      status = backend_->Reserve(units_, &bias_gradient_);
      if (!status.ok()) return status;
      const Matrix db = bias_gradient_.View(1, units_);
      backend_->SumRows(dy, db);
      status = sink(kBias, db);
      if (!status.ok()) return status;
    }
    status = backend_->Reserve(inputs_ * units_, &kernel_gradient_);
    if (!status.ok()) return status;
    const Matrix dw = kernel_gradient_.View(inputs_, units_);
    backend_->MatMul(Form::kTransposed, x, Form::kPlain, dy, dw);
    status = sink(kKernel, dw);
    if (!status.ok()) return status;
    if (!want_dx) return Matrix{};
    status = backend_->Reserve(x.size(), &input_gradient_);
    if (!status.ok()) return status;
    const Matrix dx = input_gradient_.View(x.rows, inputs_);
    backend_->MatMul(Form::kPlain, dy, Form::kTransposed, parameters[kKernel],
                     dx);
    return dx;
  }

 private:
  // Places in variables().
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

proto::Variable MakeVariable(std::string name, absl::Span<const int64_t> shape,
                             proto::Initializer initializer) {
  proto::Variable variable;
  variable.set_name(std::move(name));
  for (int64_t dimension : shape) variable.add_shape(dimension);
  variable.set_dtype(proto::FLOAT32);
  *variable.mutable_initializer() = std::move(initializer);
  variable.set_trainable(true);
  return variable;
}

absl::StatusOr<std::unique_ptr<Layer>> CreateDense(
    const proto::Layer::Dense& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend) {
  if (input_shape.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer \"", name, "\": a dense layer takes vectors, but its input has ",
        "the shape ", ShapeString(input_shape),
        "; put a flatten layer before it"));
  }
  const int64_t inputs = input_shape[0];
  const int64_t units = config.units();
  if (units < 1 || units > kMaxDimension) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer \"", name, "\": units is ", units,
                     ", but must be 1 to ", kMaxDimension));
  }
  proto::Initializer kernel_initializer;
  kernel_initializer.mutable_glorot()->set_distribution(
      proto::Initializer::UNIFORM);
  if (config.has_kernel_initializer()) {
    kernel_initializer = config.kernel_initializer();
  }
  std::vector<proto::Variable> variables = {MakeVariable(
      absl::StrCat(name, "/kernel"), {inputs, units}, kernel_initializer)};
  if (!config.has_use_bias() || config.use_bias()) {
    proto::Initializer bias_initializer;
    bias_initializer.mutable_zeros();
    if (config.has_bias_initializer()) {
      bias_initializer = config.bias_initializer();
    }
    variables.push_back(
        MakeVariable(absl::StrCat(name, "/bias"), {units}, bias_initializer));
  }
  return std::make_unique<Dense>(backend, inputs, units, std::move(variables));
}

absl::StatusOr<std::unique_ptr<Layer>> CreateDropout(
    const proto::Layer::Dropout& config, const std::string& name,
    absl::Span<const int64_t> input_shape, uint64_t key, Backend* backend) {
  // Not a number is wrong too.
  if (!(config.rate() >= 0 && config.rate() < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer \"", name, "\": rate is ", config.rate(),
                     ", but must be 0 to below 1"));
  }
  return std::make_unique<Dropout>(backend, input_shape, name, config.rate(),
                                   key);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateLayer(
    const proto::Layer& config, const std::string& name,
    absl::Span<const int64_t> input_shape, uint64_t key, Backend* backend) {
  int64_t size = 1;
  for (int64_t dimension : input_shape) {
    if (dimension < 1 || dimension > kMaxDimension / size) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer \"", name, "\": its input has the shape ",
                       ShapeString(input_shape), ", but must have 1 to ",
                       kMaxDimension, " elements"));
    }
    size *= dimension;
  }
  switch (config.kind_case()) {
    case proto::Layer::kFlatten:
      return std::make_unique<Flatten>(backend, size);
    case proto::Layer::kDense:
      return CreateDense(config.dense(), name, input_shape, backend);
    case proto::Layer::kRelu:
      return std::make_unique<Relu>(backend, input_shape);
    case proto::Layer::kTanh:
      return std::make_unique<Tanh>(backend, input_shape);
    case proto::Layer::kSigmoid:
      return std::make_unique<Sigmoid>(backend, input_shape);
    case proto::Layer::kDropout:
      return CreateDropout(config.dropout(), name, input_shape, key, backend);
    case proto::Layer::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("layer \"", name, "\" has no kind"));
}

}  // namespace holdfast
