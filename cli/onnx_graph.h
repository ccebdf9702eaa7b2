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

// Puts an ONNX graph together, node by node. Tensors go by their names. The one
// that a caller gives is a wish: where it is taken the tensor gets another,
// which is returned.
//
// Thread-compatible.
class OnnxGraph {
 public:
  // `reserved` are the names of what goes in and comes out.
  explicit OnnxGraph(const std::vector<std::string>& reserved)
      : taken_(reserved.begin(), reserved.end()) {}

  // Each adds a constant of as many values as `dims` say.
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

  // Declares float32 tensors [n, dims...], with n free, by a reserved name:
  // what goes in, and `value` as what comes out. A dimension of 0 is free too.
  void AddInput(const std::string& name, absl::Span<const int64_t> dims);
  void AddOutput(const std::string& name, const std::string& value,
                 absl::Span<const int64_t> dims);

  // The graph so far. Sets what is the same for every model, but no name.
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
