// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_ONNX_GRAPH_H_
#define HOLDFAST_CLI_ONNX_GRAPH_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/onnx.pb.h"

namespace holdfast {

// An attribute of an ONNX node.
onnx::AttributeProto OnnxInt(absl::string_view name, int64_t value);
onnx::AttributeProto OnnxFloat(absl::string_view name, float value);
onnx::AttributeProto OnnxText(absl::string_view name, absl::string_view value);
onnx::AttributeProto OnnxInts(absl::string_view name,
                              absl::Span<const int64_t> values);

// Builds an ONNX graph, node by node. Tensors are identified by name. The name
// that a caller gives is a proposal: if it is already taken, the tensor gets
// another name, which is returned.
//
// Thread-compatible.
class OnnxGraph {
 public:
  // `reserved` are the names of the graph's inputs and outputs.
  explicit OnnxGraph(const std::vector<std::string>& reserved)
      : taken_(reserved.begin(), reserved.end()) {}

  // Each adds a constant with the dimensions `dims`.
  std::string AddFloats(const std::string& name, absl::Span<const int64_t> dims,
                        absl::Span<const float> values);
  std::string AddInt8s(const std::string& name, absl::Span<const int64_t> dims,
                       absl::Span<const int8_t> values);
  std::string AddInt64s(const std::string& name,
                        absl::Span<const int64_t> values);

  // Adds an operation with one output.
  std::string AddNode(absl::string_view op, const std::string& name,
                      const std::vector<std::string>& inputs,
                      const std::vector<onnx::AttributeProto>& attributes = {});

  // Declares float32 tensors [n, dims...] with variable n, under a reserved
  // name, as an input or as an output that has the value of `value`. A
  // dimension of 0 is also variable.
  void AddInput(const std::string& name, absl::Span<const int64_t> dims);
  void AddOutput(const std::string& name, const std::string& value,
                 absl::Span<const int64_t> dims);

  // Returns the model, with the fields that are the same for every model, but
  // without a name.
  onnx::ModelProto Finish() &&;

 private:
  onnx::TensorProto* AddConstant(const std::string& name,
                                 absl::Span<const int64_t> dims,
                                 onnx::TensorProto::DataType type);
  onnx::NodeProto* AddNodeNamed(const std::string& name, absl::string_view op,
                                const std::vector<std::string>& inputs);
  std::string Untaken(const std::string& name);

  onnx::GraphProto graph_;
  std::set<std::string> taken_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_ONNX_GRAPH_H_
