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
// Thread-compatible. Keeps the memory of its results, like Layer.
class Network {
 public:
  virtual ~Network() = default;

  // As in Model.
  virtual const std::vector<proto::Variable>& variables() const = 0;
  virtual std::vector<ModelTable> tables() const { return {}; }

  // The shape of one example's outputs.
  virtual const std::vector<int64_t>& output_shape() const = 0;
  // What produces the outputs, for messages: "layer "dense_1", the last,".
  virtual std::string OutputName() const = 0;

  // Computes the outputs for `x` [examples, inputs] under `parameters`, one for
  // each of variables(), and the batch's rows. They stay valid until the next
  // Forward(), and `x` must stay valid until Backward() has returned. Errors:
  // those of Layer::Forward; INVALID_ARGUMENT when the batch lacks rows.
  virtual absl::StatusOr<ConstMatrix> Forward(
      const Pass& pass, absl::Span<const ConstMatrix> parameters, ConstMatrix x,
      const Batch& batch) = 0;

  // From `dy`, the gradient with respect to the outputs of the last Forward(),
  // which may be overwritten, computes the gradients of the variables and, at
  // the indices after the variables, of the rows of each of tables(), and gives
  // them to `sink`. Errors: those of the backend and of `sink`.
  virtual absl::Status Backward(absl::Span<const ConstMatrix> parameters,
                                Matrix dy, Layer::GradientSink sink) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_NETWORK_H_
