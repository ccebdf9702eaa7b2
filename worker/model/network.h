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
// tables, on a backend: what a NetworkModel (network_model.h) puts a loss
// behind.
//
// Thread-compatible. Keeps the memory of its results, as Layer does.
class Network {
 public:
  virtual ~Network() = default;

  // As of Model.
  virtual const std::vector<proto::Variable>& variables() const = 0;
  virtual std::vector<ModelTable> tables() const { return {}; }

  // Of one example.
  virtual const std::vector<int64_t>& output_shape() const = 0;
  // What makes the outputs, for messages: "layer "dense_1", the last,".
  virtual std::string OutputName() const = 0;

  // The outputs at `x` [examples, inputs], under `parameters`, one for each of
  // variables(), and the batch's rows. They stay until the next Forward(), and
  // `x` must until Backward() has returned. Errors: those of Layer::Forward;
  // INVALID_ARGUMENT when the batch lacks rows.
  virtual absl::StatusOr<ConstMatrix> Forward(
      const Pass& pass, absl::Span<const ConstMatrix> parameters, ConstMatrix x,
      const Batch& batch) = 0;

  // From `dy`, the gradient by the outputs of the last Forward(), which it may
  // overwrite, makes those by the variables, and, at the places behind them, by
  // the rows of each of tables(), for `sink`. Errors: those of the backend and
  // of `sink`.
  virtual absl::Status Backward(absl::Span<const ConstMatrix> parameters,
                                Matrix dy, Layer::GradientSink sink) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_NETWORK_H_
