// SPDX-License-Identifier: Apache-2.0

// The interface of a model, which a worker trains and users can implement
// (examples/custom_model/), and helpers to implement it.
#ifndef HOLDFAST_WORKER_MODEL_MODEL_H_
#define HOLDFAST_WORKER_MODEL_MODEL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/table.pb.h"
#include "proto/training.pb.h"
#include "worker/input/batch.h"
#include "worker/model/gradient_sink.h"

namespace holdfast {

// The result of a forward pass.
struct BatchResult {
  int64_t examples = 0;
  // Sum of the examples' losses, each times its weight.
  double loss_sum = 0;
  // The number of examples whose class was predicted correctly. A model always
  // sets this number or, if it predicts no class, never.
  std::optional<int64_t> correct;
  // The sum over the examples of the mean over the outputs of |output -
  // target|. A model always sets this sum or, if it predicts no number, never.
  std::optional<double> absolute_error_sum;
  // The same sum of (output - target)^2.
  std::optional<double> squared_error_sum;
  // Whether the loss is finite. If it is not, no gradient was computed, and the
  // worker contributes nothing to the step.
  bool finite = true;
  // The outputs for each example, row-major: [examples, Outputs().count]. Set
  // in an evaluation if Batch::wants_outputs. They stay valid until the next
  // call of the model.
  absl::Span<const float> outputs;
};

// Describes a model's outputs, for scores that are computed from them.
struct OutputSpec {
  // The number of outputs for each example. 0: evaluations return no outputs.
  int64_t count = 0;
  // Whether the outputs predict one of several classes: the class of the
  // greatest output, the first among equals; or, for a single output, class 1
  // if it is above 0 and class 0 otherwise.
  bool predict_class = false;
};

// An embedding table of a model (docs/protocol/tables.md).
struct ModelTable {
  proto::EmbeddingTable declared;
  // The table's own optimizer. Absent: the job's.
  std::optional<proto::Optimizer> optimizer;
  // The fields whose ids have rows in this table: indices into
  // ExampleSpec::id_fields, ascending, at least one.
  std::vector<int> fields;
};

// Takes the gradient of the variable at this index in Variables(); at the
// indices after the variables, the gradient of the rows of one of Tables(), in
// their order: [unique ids of the batch, row_length].
using GradientSink = GradientSinkOf<void, absl::Span<const float>>;

// A differentiable function with a loss, whose variables the cluster holds. A
// model has no state that a step changes: the values of its variables are
// arguments of every call.
//
// Thread-compatible. A worker creates one model and uses it until the worker
// ends, for batches of any size. A model should allocate memory in the first
// step and keep it.
class Model {
 public:
  virtual ~Model() = default;

  // Returns name, shape and initial values of each variable, in the order in
  // which the forward pass uses them. Must be the same at every call and on
  // every worker. Names must be unique.
  virtual std::vector<proto::Variable> Variables() const = 0;

  // Returns the embedding tables whose rows batches contain (Batch::rows). Must
  // be the same at every call and on every worker. The names of tables must
  // differ from those of variables.
  virtual std::vector<ModelTable> Tables() const { return {}; }

  // Whether ComputeGradients waits for each of its parameters by itself
  // (Batch::arrival), so that its forward pass can begin when the first of them
  // have arrived. Must be the same at every call. By default the worker calls
  // ComputeGradients once all have arrived.
  virtual bool AwaitsParameters() const { return false; }

  // Computes the gradient of the mean loss (if there are weights, of the mean
  // of weight x loss) over `batch`, which has at least one example, at
  // `parameters`: the values of the variables in the order of Variables(),
  // row-major. Randomness follows from the job's seed and from
  // `batch.positions`, so that an example is treated the same in every batch
  // and on every worker.
  //
  // Calls `sink` once for each trainable variable and each table, as soon as
  // its gradient is ready, before the rest of the backward pass: the worker
  // sends the gradient meanwhile. Any thread may call `sink`, but one at a
  // time, and all calls must be over when this returns. The last layer's
  // gradients come first. A gradient may be written to the memory that the sink
  // has for it (GradientSink::Memory); in any other memory it must stay
  // unchanged until the next call of ComputeGradients. For a variable that is a
  // moving average, `sink` gets the batch's value instead of a gradient.
  // `batch.loss_scale` does not change gradients except for rounding errors.
  //
  // If `batch.arrival` is not null, which requires AwaitsParameters(), an
  // element of `parameters` must not be used, nor its size, before the
  // arrival's Await has returned OK for it. All of them must have arrived
  // before the first call of `sink` and before this returns OK.
  //
  // When this has returned, even with an error, nothing may read the parameters
  // and the batch any more: a model that uploads values on which no gradient
  // depends must wait for these uploads (Backend::AwaitUploads).
  //
  // If the loss is not finite, sets BatchResult::finite to false and never
  // calls `sink`.
  // Errors: INVALID_ARGUMENT when parameters or batch do not fit the model
  // (CheckParameters, CheckBatch); those of the backend. After an error the
  // caller must drop the gradients that `sink` took.
  virtual absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink) = 0;

  // Does the forward pass alone, without anything random. When this has
  // returned, nothing may read the arguments any more.
  virtual absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const Batch& batch) = 0;

  // Describes BatchResult::outputs after an evaluation. Must be the same at
  // every call.
  virtual OutputSpec Outputs() const { return {}; }
};

// Checks that `parameters` has values for all of `variables`, one value for
// each element. Errors: INVALID_ARGUMENT with the variable's name; those of
// NumElements.
absl::Status CheckParameters(
    absl::Span<const proto::Variable> variables,
    absl::Span<const absl::Span<const float>> parameters);

// Checks that `batch` has at least one example, `example_size` values for each,
// labels in [0, num_classes) or, if `num_targets` is not 0, `num_targets`
// targets for each example; and weights, and positions, for all examples or for
// none.
// Errors: INVALID_ARGUMENT, with the example's index in the batch.
absl::Status CheckBatch(const Batch& batch, int64_t example_size,
                        int64_t num_classes, int64_t num_targets = 0);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_MODEL_H_
