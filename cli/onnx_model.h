#ifndef HOLDFAST_CLI_ONNX_MODEL_H_
#define HOLDFAST_CLI_ONNX_MODEL_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/onnx.pb.h"

namespace holdfast {

struct OnnxOptions {
  // Matrices and kernels as 8-bit integers
  // (common/tensor/weight_quantization.h), which the graph turns back into
  // float32: a quarter of the bytes.
  bool int8 = false;
};

// The values of a variable, row-major.
using VariableReader =
    std::function<absl::StatusOr<std::vector<float>>(const proto::Variable&)>;

// The model of the declaration's job file as an ONNX model. It takes `input`
// [n, example...] float32, examples as the model is trained on them, and gives
//
//   outputs        [n, outputs]: of the last layer
//   probabilities  the same through softmax or sigmoid, where the loss is a
//                  cross-entropy
//
// as in evaluation: without dropout, and with the moving averages of
// batch_norm. Errors: NOT_FOUND when no job file was declared; UNIMPLEMENTED
// for a registered model; INVALID_ARGUMENT when the model is larger than an
// ONNX file may be, 2 GiB; those of `read`.
absl::StatusOr<onnx::ModelProto> MakeOnnxModel(
    const proto::Declaration& declaration, const VariableReader& read,
    const OnnxOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_ONNX_MODEL_H_
