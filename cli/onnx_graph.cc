// SPDX-License-Identifier: Apache-2.0
#include "cli/onnx_graph.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/version.h"

namespace holdfast {
namespace {

// IR version 8 and operator set 17 were both introduced in ONNX 1.12 (2022).
constexpr int64_t kIrVersion = 8;
constexpr int64_t kOperatorSet = 17;

onnx::AttributeProto Attribute(absl::string_view name,
                               onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto attribute;
  attribute.set_name(std::string(name));
  attribute.set_type(type);
  return attribute;
}

void SetFloats(const std::string& name, absl::Span<const int64_t> dims,
               onnx::ValueInfoProto* value) {
  value->set_name(name);
  onnx::TypeProto::Tensor* const type =
      value->mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx::TensorProto::FLOAT);
  type->mutable_shape()->add_dim()->set_dim_param("n");
  for (const int64_t dim : dims) {
    onnx::TensorShapeProto::Dimension* const added =
        type->mutable_shape()->add_dim();
    if (dim > 0) added->set_dim_value(dim);
  }
}

template <typename T>
void SetBytes(absl::Span<const T> values, onnx::TensorProto* tensor) {
  tensor->set_raw_data(values.data(), values.size() * sizeof(T));
}

}  // namespace

onnx::AttributeProto OnnxInt(absl::string_view name, int64_t value) {
  auto attribute = Attribute(name, onnx::AttributeProto::INT);
  attribute.set_i(value);
  return attribute;
}

onnx::AttributeProto OnnxFloat(absl::string_view name, float value) {
  auto attribute = Attribute(name, onnx::AttributeProto::FLOAT);
  attribute.set_f(value);
  return attribute;
}

onnx::AttributeProto OnnxText(absl::string_view name, absl::string_view value) {
  auto attribute = Attribute(name, onnx::AttributeProto::STRING);
  attribute.set_s(std::string(value));
  return attribute;
}

onnx::AttributeProto OnnxInts(absl::string_view name,
                              absl::Span<const int64_t> values) {
  auto attribute = Attribute(name, onnx::AttributeProto::INTS);
  attribute.mutable_ints()->Add(values.begin(), values.end());
  return attribute;
}

std::string OnnxGraph::Untaken(const std::string& name) {
  std::string other = name;
  for (int i = 2; !taken_.insert(other).second; ++i) {
    other = absl::StrCat(name, "_", i);
  }
  return other;
}

onnx::TensorProto* OnnxGraph::AddConstant(const std::string& name,
                                          absl::Span<const int64_t> dims,
                                          onnx::TensorProto::DataType type) {
  onnx::TensorProto* const tensor = graph_.add_initializer();
  tensor->set_name(Untaken(name));
  tensor->set_data_type(type);
  tensor->mutable_dims()->Add(dims.begin(), dims.end());
  return tensor;
}

std::string OnnxGraph::AddFloats(const std::string& name,
                                 absl::Span<const int64_t> dims,
                                 absl::Span<const float> values) {
  onnx::TensorProto* const tensor =
      AddConstant(name, dims, onnx::TensorProto::FLOAT);
  SetBytes(values, tensor);
  return tensor->name();
}

std::string OnnxGraph::AddInt8s(const std::string& name,
                                absl::Span<const int64_t> dims,
                                absl::Span<const int8_t> values) {
  onnx::TensorProto* const tensor =
      AddConstant(name, dims, onnx::TensorProto::INT8);
  SetBytes(values, tensor);
  return tensor->name();
}

std::string OnnxGraph::AddInt64s(const std::string& name,
                                 absl::Span<const int64_t> values) {
  const int64_t count = values.size();
  onnx::TensorProto* const tensor =
      AddConstant(name, {count}, onnx::TensorProto::INT64);
  SetBytes(values, tensor);
  return tensor->name();
}

std::string OnnxGraph::AddNode(
    absl::string_view op, const std::string& name,
    const std::vector<std::string>& inputs,
    const std::vector<onnx::AttributeProto>& attributes) {
  onnx::NodeProto* const node = AddNodeNamed(Untaken(name), op, inputs);
  for (const auto& attribute : attributes) *node->add_attribute() = attribute;
  return node->name();
}

onnx::NodeProto* OnnxGraph::AddNodeNamed(
    const std::string& name, absl::string_view op,
    const std::vector<std::string>& inputs) {
  onnx::NodeProto* const node = graph_.add_node();
  node->set_op_type(std::string(op));
  node->set_name(name);
  for (const std::string& input : inputs) node->add_input(input);
  node->add_output(name);
  return node;
}

void OnnxGraph::AddInput(const std::string& name,
                         absl::Span<const int64_t> dims) {
  SetFloats(name, dims, graph_.add_input());
}

void OnnxGraph::AddOutput(const std::string& name, const std::string& value,
                          absl::Span<const int64_t> dims) {
  AddNodeNamed(name, "Identity", {value});
  SetFloats(name, dims, graph_.add_output());
}

onnx::ModelProto OnnxGraph::Finish() && {
  onnx::ModelProto model;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("holdfast");
  model.set_producer_version(kVersion);
  model.add_opset_import()->set_version(kOperatorSet);
  *model.mutable_graph() = std::move(graph_);
  return model;
}

}  // namespace holdfast
