// SPDX-License-Identifier: Apache-2.0
#include "cli/onnx_model.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cli/onnx_graph.h"
#include "common/base/status_macros.h"
#include "common/job/job_file.h"
#include "common/tensor/shape.h"
#include "common/tensor/weight_quantization.h"
#include "proto/job.pb.h"

namespace holdfast {
namespace {

// The same as in worker/model/layers/normalization.cc.
constexpr float kDefaultEpsilon = 1e-3f;
// The limit of protobuf.
constexpr uint64_t kMaxBytes = std::numeric_limits<int32_t>::max();

constexpr char kInput[] = "input";
constexpr char kOutputs[] = "outputs";
constexpr char kProbabilities[] = "probabilities";

// A tensor of the graph, [n, ...]. Images are [n, height, width, channels], as
// in the job's layers; ONNX's image operators expect channels first.
struct Value {
  std::string name;
  // Rank of its shape without n.
  int rank = 0;
};

// Padding by ONNX's auto_pad, which is the same as in the job's layers.
onnx::AttributeProto PaddingOf(proto::Layer::Padding padding) {
  return OnnxText("auto_pad",
                  padding == proto::Layer::SAME ? "SAME_UPPER" : "VALID");
}

// Height and width, from one number or two.
std::vector<int64_t> ExtentOf(
    const google::protobuf::RepeatedField<uint32_t>& values,
    const std::vector<int64_t>& otherwise) {
  if (values.empty()) return otherwise;
  return {values[0], values[values.size() - 1]};
}

class Translator {
 public:
  Translator(const proto::Declaration& declaration, const VariableReader& read,
             const OnnxOptions& options)
      : declaration_(declaration), read_(read), options_(options) {}

  absl::StatusOr<onnx::ModelProto> Translate(const proto::Job& job);

 private:
  // Variables and nodes are named after their layer, with the prefix `prefix`.
  absl::StatusOr<Value> AddLayers(
      const google::protobuf::RepeatedPtrField<proto::Layer>& layers,
      const std::string& prefix, Value x);
  absl::StatusOr<Value> AddLayer(const proto::Layer& layer,
                                 const std::string& name, const Value& x);
  absl::StatusOr<Value> AddDense(const std::string& name, bool use_bias,
                                 const Value& x);
  absl::StatusOr<Value> AddConv(const proto::Layer::Conv2d& conv,
                                const std::string& name, const Value& x);
  template <typename Pool>
  Value AddPool(absl::string_view op, const Pool& pool,
                std::vector<onnx::AttributeProto> attributes,
                const std::string& name, const Value& x);
  absl::StatusOr<Value> AddLayerNorm(const proto::Layer::LayerNorm& norm,
                                     const std::string& name, const Value& x);
  absl::StatusOr<Value> AddBatchNorm(const proto::Layer::BatchNorm& norm,
                                     const std::string& name, const Value& x);
  absl::StatusOr<Value> AddResidual(const proto::Layer::Residual& residual,
                                    const std::string& name, const Value& x);

  // Adds the channel dimension to an image without one.
  Value AsImage(const std::string& name, const Value& x);
  // Runs `op` on the image with channels first.
  Value AddOnChannelsFirst(absl::string_view op, const std::string& name,
                           const Value& x, std::vector<std::string> more_inputs,
                           const std::vector<onnx::AttributeProto>& attributes);

  struct Weights {
    proto::Variable variable;
    std::vector<float> values;
  };
  // Errors: NOT_FOUND; INVALID_ARGUMENT when the total size exceeds that of a
  // file.
  absl::StatusOr<Weights> Read(const std::string& name);
  // Reads a variable and adds it unchanged as a constant; returns its name.
  absl::StatusOr<std::string> AddVariable(const std::string& name);
  // Adds a kernel, whose last dimension is the channels, as a constant of shape
  // `dims`, in which the channels are dimension `axis`; `values` are in the
  // order of the constant.
  std::string AddKernel(const Weights& weights, absl::Span<const int64_t> dims,
                        int64_t axis,
                        const std::function<size_t(size_t)>& place);

  const proto::Declaration& declaration_;
  const VariableReader& read_;
  const OnnxOptions options_;
  OnnxGraph graph_{{kInput, kOutputs, kProbabilities}};
  uint64_t bytes_ = 0;
};

absl::StatusOr<Translator::Weights> Translator::Read(const std::string& name) {
  for (const proto::Variable& variable : declaration_.variables()) {
    if (variable.name() != name) continue;
    HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                              NumElements(variable.shape()));
    bytes_ += elements * sizeof(float);
    if (bytes_ > kMaxBytes) {
      return absl::InvalidArgumentError(
          "the model is larger than an ONNX file may be, 2 GiB; export "
          ".safetensors or .npz");
    }
    HOLDFAST_ASSIGN_OR_RETURN(auto values, read_(variable));
    return Weights{variable, std::move(values)};
  }
  return absl::NotFoundError(
      absl::StrCat("the job's model has a variable \"", name,
                   "\", which is not in the checkpoint"));
}

absl::StatusOr<std::string> Translator::AddVariable(const std::string& name) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto weights, Read(name));
  return graph_.AddFloats(name,
                          std::vector<int64_t>(weights.variable.shape().begin(),
                                               weights.variable.shape().end()),
                          weights.values);
}

std::string Translator::AddKernel(const Weights& weights,
                                  absl::Span<const int64_t> dims, int64_t axis,
                                  const std::function<size_t(size_t)>& place) {
  const std::string& name = weights.variable.name();
  const size_t size = weights.values.size();
  if (!options_.int8) {
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) values[place(i)] = weights.values[i];
    return graph_.AddFloats(name, dims, values);
  }
  const int64_t channels =
      weights.variable.shape(weights.variable.shape_size() - 1);
  const QuantizedWeights quantized = QuantizeWeights(weights.values, channels);
  std::vector<int8_t> values(size);
  for (size_t i = 0; i < size; ++i) values[place(i)] = quantized.values[i];
  return graph_.AddNode(
      "DequantizeLinear", name,
      {graph_.AddInt8s(name + "/int8", dims, values),
       graph_.AddFloats(name + "/scales", {channels}, quantized.scales)},
      {OnnxInt("axis", axis)});
}

Value Translator::AsImage(const std::string& name, const Value& x) {
  if (x.rank != 2) return x;
  return {graph_.AddNode("Unsqueeze", name + "/image",
                         {x.name, graph_.AddInt64s(name + "/axis", {3})}),
          3};
}

Value Translator::AddOnChannelsFirst(
    absl::string_view op, const std::string& name, const Value& x,
    std::vector<std::string> more_inputs,
    const std::vector<onnx::AttributeProto>& attributes) {
  const Value image = AsImage(name, x);
  more_inputs.insert(
      more_inputs.begin(),
      graph_.AddNode("Transpose", name + "/channels_first", {image.name},
                     {OnnxInts("perm", {0, 3, 1, 2})}));
  const std::string y =
      graph_.AddNode(op, absl::StrCat(name, "/", op), more_inputs, attributes);
  return {
      graph_.AddNode("Transpose", name, {y}, {OnnxInts("perm", {0, 2, 3, 1})}),
      3};
}

absl::StatusOr<Value> Translator::AddDense(const std::string& name,
                                           bool use_bias, const Value& x) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto kernel, Read(name + "/kernel"));
  const std::vector<int64_t> dims(kernel.variable.shape().begin(),
                                  kernel.variable.shape().end());
  const std::string weights =
      AddKernel(kernel, dims, /*axis=*/1, [](size_t place) { return place; });
  if (!use_bias) {
    return Value{graph_.AddNode("MatMul", name, {x.name, weights}), 1};
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto bias, AddVariable(name + "/bias"));
  const std::string product =
      graph_.AddNode("MatMul", name + "/product", {x.name, weights});
  return Value{graph_.AddNode("Add", name, {product, bias}), 1};
}

absl::StatusOr<Value> Translator::AddConv(const proto::Layer::Conv2d& conv,
                                          const std::string& name,
                                          const Value& x) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto kernel, Read(name + "/kernel"));
  // [height, width, channels, filters] -> [filters, channels, height, width].
  const auto& shape = kernel.variable.shape();
  const int64_t channels = shape[2], filters = shape[3];
  const int64_t window = shape[0] * shape[1];
  const auto place = [=](size_t at) {
    const size_t filter = at % filters;
    const size_t channel = at / filters % channels;
    return (filter * channels + channel) * window + at / filters / channels;
  };
  std::vector<std::string> inputs = {AddKernel(
      kernel, {filters, channels, shape[0], shape[1]}, /*axis=*/0, place)};
  if (!conv.has_use_bias() || conv.use_bias()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto bias, AddVariable(name + "/bias"));
    inputs.push_back(bias);
  }
  return AddOnChannelsFirst(
      "Conv", name, x, inputs,
      {PaddingOf(conv.padding()),
       OnnxInts("strides", ExtentOf(conv.stride(), {1, 1})),
       OnnxInt("group", conv.has_groups() ? conv.groups() : 1)});
}

template <typename Pool>
Value Translator::AddPool(absl::string_view op, const Pool& pool,
                          std::vector<onnx::AttributeProto> attributes,
                          const std::string& name, const Value& x) {
  const std::vector<int64_t> size = ExtentOf(pool.size(), {1, 1});
  attributes.push_back(PaddingOf(pool.padding()));
  attributes.push_back(OnnxInts("kernel_shape", size));
  attributes.push_back(OnnxInts("strides", ExtentOf(pool.stride(), size)));
  return AddOnChannelsFirst(op, name, x, {}, attributes);
}

absl::StatusOr<Value> Translator::AddLayerNorm(
    const proto::Layer::LayerNorm& norm, const std::string& name,
    const Value& x) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto scale, AddVariable(name + "/scale"));
  HOLDFAST_ASSIGN_OR_RETURN(const auto offset, AddVariable(name + "/offset"));
  const Value image = AsImage(name, x);
  return Value{
      graph_.AddNode(
          "LayerNormalization", name, {image.name, scale, offset},
          {OnnxInt("axis", -1),
           OnnxFloat("epsilon",
                     norm.has_epsilon() ? norm.epsilon() : kDefaultEpsilon)}),
      image.rank};
}

// y = factor x + term, with constants computed in double precision.
absl::StatusOr<Value> Translator::AddBatchNorm(
    const proto::Layer::BatchNorm& norm, const std::string& name,
    const Value& x) {
  std::vector<Weights> read;
  for (const char* variable :
       {"/scale", "/offset", "/moving_mean", "/moving_variance"}) {
    HOLDFAST_ASSIGN_OR_RETURN(auto weights, Read(name + variable));
    read.push_back(std::move(weights));
  }
  const double epsilon = norm.has_epsilon() ? norm.epsilon() : kDefaultEpsilon;
  const size_t channels = read[0].values.size();
  std::vector<float> factors(channels), terms(channels);
  for (size_t i = 0; i < channels; ++i) {
    const double factor =
        read[0].values[i] / std::sqrt(read[3].values[i] + epsilon);
    factors[i] = static_cast<float>(factor);
    terms[i] =
        static_cast<float>(read[1].values[i] - factor * read[2].values[i]);
  }
  const Value image = AsImage(name, x);
  const std::vector<int64_t> dims = {static_cast<int64_t>(channels)};
  const std::string product = graph_.AddNode(
      "Mul", name + "/product",
      {image.name, graph_.AddFloats(name + "/factor", dims, factors)});
  return Value{
      graph_.AddNode("Add", name,
                     {product, graph_.AddFloats(name + "/term", dims, terms)}),
      image.rank};
}

absl::StatusOr<Value> Translator::AddResidual(
    const proto::Layer::Residual& residual, const std::string& name,
    const Value& x) {
  const Value image = AsImage(name, x);
  HOLDFAST_ASSIGN_OR_RETURN(const auto body,
                            AddLayers(residual.layers(), name + "/", image));
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto shortcut,
      AddLayers(residual.shortcut(), name + "/shortcut/", image));
  return Value{graph_.AddNode("Add", name, {body.name, shortcut.name}),
               body.rank};
}

absl::StatusOr<Value> Translator::AddLayer(const proto::Layer& layer,
                                           const std::string& name,
                                           const Value& x) {
  switch (layer.kind_case()) {
    case proto::Layer::kFlatten:
      return Value{
          graph_.AddNode("Flatten", name, {x.name}, {OnnxInt("axis", 1)}), 1};
    case proto::Layer::kReshape: {
      // -1 stands for the examples.
      std::vector<int64_t> shape = {-1};
      shape.insert(shape.end(), layer.reshape().shape().begin(),
                   layer.reshape().shape().end());
      return Value{
          graph_.AddNode("Reshape", name,
                         {x.name, graph_.AddInt64s(name + "/shape", shape)}),
          layer.reshape().shape_size()};
    }
    case proto::Layer::kDense:
      return AddDense(
          name, !layer.dense().has_use_bias() || layer.dense().use_bias(), x);
    case proto::Layer::kRelu:
      return Value{graph_.AddNode("Relu", name, {x.name}), x.rank};
    case proto::Layer::kTanh:
      return Value{graph_.AddNode("Tanh", name, {x.name}), x.rank};
    case proto::Layer::kSigmoid:
      return Value{graph_.AddNode("Sigmoid", name, {x.name}), x.rank};
    case proto::Layer::kDropout:
      return x;
    case proto::Layer::kConv2D:
      return AddConv(layer.conv2d(), name, x);
    case proto::Layer::kMaxPool2D:
      return AddPool("MaxPool", layer.max_pool2d(), {}, name, x);
    case proto::Layer::kAveragePool2D:
      return AddPool("AveragePool", layer.average_pool2d(),
                     {OnnxInt("count_include_pad", 0)}, name, x);
    case proto::Layer::kGlobalAveragePool2D:
      return Value{
          graph_.AddNode("ReduceMean", name, {AsImage(name, x).name},
                         {OnnxInts("axes", {1, 2}), OnnxInt("keepdims", 0)}),
          1};
    case proto::Layer::kLayerNorm:
      return AddLayerNorm(layer.layer_norm(), name, x);
    case proto::Layer::kBatchNorm:
      return AddBatchNorm(layer.batch_norm(), name, x);
    case proto::Layer::kResidual:
      return AddResidual(layer.residual(), name, x);
    case proto::Layer::KIND_NOT_SET:
      break;
  }
  return absl::UnimplementedError(absl::StrCat(
      "layer \"", name, "\" is of a kind that this version does not support"));
}

absl::StatusOr<Value> Translator::AddLayers(
    const google::protobuf::RepeatedPtrField<proto::Layer>& layers,
    const std::string& prefix, Value x) {
  const std::vector<std::string> names = LayerNames(layers);
  for (int i = 0; i < layers.size(); ++i) {
    HOLDFAST_ASSIGN_OR_RETURN(auto y,
                              AddLayer(layers[i], prefix + names[i], x));
    x = std::move(y);
  }
  return x;
}

absl::StatusOr<onnx::ModelProto> Translator::Translate(const proto::Job& job) {
  const auto& shape = declaration_.job().example_shape();
  graph_.AddInput(kInput, std::vector<int64_t>(shape.begin(), shape.end()));
  const proto::Sequential& model = job.model().sequential();
  const auto outputs =
      AddLayers(model.layers(), /*prefix=*/"", {kInput, shape.size()});
  if (!outputs.ok()) return outputs.status();
  graph_.AddOutput(kOutputs, outputs->name, {0});
  if (model.loss().has_softmax_cross_entropy()) {
    graph_.AddOutput(kProbabilities,
                     graph_.AddNode("Softmax", "softmax", {outputs->name},
                                    {OnnxInt("axis", 1)}),
                     {0});
  } else if (model.loss().has_sigmoid_cross_entropy()) {
    graph_.AddOutput(kProbabilities,
                     graph_.AddNode("Sigmoid", "probability", {outputs->name}),
                     {0});
  }
  onnx::ModelProto file = std::move(graph_).Finish();
  file.mutable_graph()->set_name(job.name());
  return file;
}

}  // namespace

absl::StatusOr<onnx::ModelProto> MakeOnnxModel(
    const proto::Declaration& declaration, const VariableReader& read,
    const OnnxOptions& options) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto job, DeclaredJobFile(declaration));
  if (job.model().has_registered()) {
    return absl::UnimplementedError(
        absl::StrCat("the job's model \"", job.model().registered().name(),
                     "\" is your own code, which cannot be exported as ONNX; "
                     "export .safetensors or .npz"));
  }
  if (!job.model().has_sequential()) {
    return absl::UnimplementedError(
        "the job's model has embedding tables, which cannot be exported as "
        "ONNX; export .npz, with files of ids and rows for each table");
  }
  return Translator(declaration, read, options).Translate(job);
}

}  // namespace holdfast
