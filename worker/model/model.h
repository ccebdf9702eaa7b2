// What a worker trains: an interface that users implement
// (examples/custom_model/), and what helps to implement it.
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

// What a forward pass found.
struct BatchResult {
  int64_t examples = 0;
  // Sum of the examples' losses, each times its weight.
  double loss_sum = 0;
  // Examples whose class was predicted right. A model tells it always or, where
  // it predicts no class, never.
  std::optional<int64_t> correct;
  // Sum of the examples' mean distances, over the outputs, of output and
  // target. A model tells it always or, where it predicts no number, never.
  std::optional<double> absolute_error_sum;
  // The same with the distance's square.
  std::optional<double> squared_error_sum;
  // Whether the loss is a number. Where it is not, no gradient was made, and
  // the worker contributes nothing to the step.
  bool finite = true;
  // Of an evaluation whose batch wants them: row-major, Outputs().count for
  // each example. They stay until the next call of the model.
  absl::Span<const float> outputs;
};

// What a model's outputs are, for scores that are made of them.
struct OutputSpec {
  // Numbers for each example. 0: evaluations tell none.
  int64_t count = 0;
  // Whether they predict one of several classes: that of the greatest, of
  // equals the first, or, of a single one, 1 where it is above 0 and 0
  // elsewhere.
  bool predict_class = false;
};

// An embedding table of a model (docs/protocol/tables.md).
struct ModelTable {
  proto::EmbeddingTable declared;
  // Of this table's own. Absent: the job's.
  std::optional<proto::Optimizer> optimizer;
  // The fields of ids whose rows are the table's: their places in
  // ExampleSpec::id_fields, rising, at least one.
  std::vector<int> fields;
};

// Takes the gradient of the variable at this place in Variables(); at the
// places behind them, of the rows of the table at this place in Tables():
// [unique ids of the batch, row_length].
using GradientSink = GradientSinkOf<void, absl::Span<const float>>;

// A differentiable function with a loss, whose variables the cluster holds. A
// model has no state that a step changes: it gets the values with every call.
//
// Thread-compatible. A worker makes one and uses it to its end, for batches of
// any size; memory is best taken in the first step and kept.
class Model {
 public:
  virtual ~Model() = default;

  // Name, shape and first values of each variable, in the order in which the
  // forward pass uses them. Always the same; every worker's model must give the
  // same. Names are unique.
  virtual std::vector<proto::Variable> Variables() const = 0;

  // The embedding tables whose rows batches bring (Batch::tables); likewise
  // always the same. Their names are not those of variables.
  virtual std::vector<ModelTable> Tables() const { return {}; }

  // Computes the gradient of the mean loss over `batch`, at least one example
  // (where there are weights, of the mean of weight x loss),
  // at `parameters`: values of the variables in the order of Variables(),
  // row-major. What is random in it follows from the job's seed and from
  // `batch.positions`, so that it is the same in whatever batch an example
  // comes, and on whichever worker.
  //
  // Calls `sink` once for each trainable variable and each table, from this
  // thread, as soon as its gradient is ready, while the rest of the backward
  // pass is still to come: the worker sends it off meanwhile. The last layer's
  // come first. A gradient may be written to the sink's memory for it, where
  // there is some; any other memory stays as it is until the next call of
  // ComputeGradients. For a variable with a moving average `sink` gets the
  // batch's value instead. `batch.loss_scale` changes no gradient but by what
  // rounding loses.
  //
  // When it returns, whatever it returns, nothing reads the parameters and the
  // batch any more: a model that uploads what no gradient depends on waits for
  // that (Backend::AwaitUploads).
  //
  // When the loss is not finite, returns so and never calls `sink`.
  // Errors: INVALID_ARGUMENT when parameters or batch do not fit the model
  // (CheckParameters, CheckBatch); those of the backend. After an error the
  // gradients that `sink` took are to be dropped.
  virtual absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink) = 0;

  // The forward pass alone, without anything random. Reads nothing any more
  // when it returns.
  virtual absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const Batch& batch) = 0;

  // What BatchResult::outputs holds after an evaluation. Always the same.
  virtual OutputSpec Outputs() const { return {}; }
};

// Tests that there are values for all of `variables`, and as many as each has
// elements.
// Errors: INVALID_ARGUMENT with the variable's name; those of NumElements.
absl::Status CheckParameters(
    absl::Span<const proto::Variable> variables,
    absl::Span<const absl::Span<const float>> parameters);

// Tests that `batch` has at least one example, `example_size` values for each,
// labels in [0, num_classes), or `num_targets` targets for each where that is
// not 0, and weights and positions for all examples or for none.
// Errors: INVALID_ARGUMENT with the example's place in the batch.
absl::Status CheckBatch(const Batch& batch, int64_t example_size,
                        int64_t num_classes, int64_t num_targets = 0);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_MODEL_H_
