// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_NETWORK_H_
#define HOLDFAST_WORKER_MODEL_NETWORK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/training.pb.h"
#include "worker/backend/backend.h"
#include "worker/input/batch.h"
#include "worker/model/layers/layer.h"
#include "worker/model/model.h"

namespace holdfast {

// A differentiable function of a batch's inputs and of rows of embedding
// tables, on a backend. A NetworkModel (network_model.h) adds the loss.
//
// Thread-compatible. Like Layer, reuses the memory of its results from batch to
// batch.
class Network {
 public:
  virtual ~Network() = default;

  // As in Model.
  virtual const std::vector<proto::Variable>& variables() const = 0;
  virtual std::vector<ModelTable> tables() const { return {}; }

  // The shape of one example's outputs.
  virtual const std::vector<int64_t>& output_shape() const = 0;
  // Returns the name of the part that produces the outputs, for messages: for
  // example "layer "dense_1", the last,".
  virtual std::string OutputName() const = 0;

  // Whether Forward() brings the parameters that it uses by Pass::bring. If
  // not, they must be there.
  virtual bool BringsParameters() const { return false; }

  // Computes the outputs for `x` [examples, inputs]. Uses `parameters`, which
  // has one matrix for each of variables(), and the embedding rows in `batch`.
  // The outputs stay valid until the next Forward(); `x` must stay valid until
  // Backward() has returned. Errors: those of Layer::Forward; INVALID_ARGUMENT
  // when the batch lacks embedding rows.
  virtual absl::StatusOr<ConstMatrix> Forward(
      const Pass& pass, absl::Span<const ConstMatrix> parameters, ConstMatrix x,
      const Batch& batch) = 0;

  // Computes gradients from `dy`, the gradient with respect to the outputs of
  // the last Forward(), and gives them to `sink`: those of the variables and,
  // at the indices after the variables, those of the rows of each of tables().
  // May overwrite `dy`. Errors: those of the backend and of `sink`.
  virtual absl::Status Backward(absl::Span<const ConstMatrix> parameters,
                                Matrix dy, Layer::GradientSink sink) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_NETWORK_H_
