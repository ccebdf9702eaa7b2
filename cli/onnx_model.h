// SPDX-License-Identifier: Apache-2.0
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
  // Whether matrices and kernels are stored as 8-bit integers
  // (common/tensor/weight_quantization.h), which the graph converts back to
  // float32, in a quarter of the bytes.
  bool int8 = false;
};

// Returns the values of a variable, row-major.
using VariableReader =
    std::function<absl::StatusOr<std::vector<float>>(const proto::Variable&)>;

// The model of the declaration's job file as an ONNX model. Its input is
// `input` [n, example...] float32, the examples in the form in which the model
// is trained on them. Its outputs are
//
//   outputs        [n, outputs]: the outputs of the last layer
//   probabilities  the same after softmax or sigmoid, if the loss is a
//                  cross-entropy
//
// computed as in evaluation: without dropout, and with the moving averages of
// batch_norm. Errors: NOT_FOUND when no job file was declared; UNIMPLEMENTED
// for a registered model; INVALID_ARGUMENT when the model is larger than 2 GiB,
// the limit of ONNX files; those of `read`.
absl::StatusOr<onnx::ModelProto> MakeOnnxModel(
    const proto::Declaration& declaration, const VariableReader& read,
    const OnnxOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_ONNX_MODEL_H_
