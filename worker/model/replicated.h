#ifndef HOLDFAST_WORKER_MODEL_REPLICATED_H_
#define HOLDFAST_WORKER_MODEL_REPLICATED_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/example_source.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/model.h"
#include "worker/model/registry.h"

namespace holdfast {

// A job file's model with a replica on each of several backends, which share
// each batch; one gradient comes out (TensorFlow calls this MirroredStrategy).
//
// 1. A batch is cut into as many ranges as there are replicas (CutBatch).
// 2. Each replica computes the gradient of its range, on a thread of its own;
//    the first on the caller's.
// 3. The gradient of a variable, and the value of one with a moving average, is
//
//      w[0] g[0] + w[1] g[1] + ...,  w[r] = examples of r / examples of all,
//
//    from the left, each weight, product and sum rounded to float32: the bits
//    do not depend on the timing, and are those of as many micro-batches. A
//    sequential model's replicas bring what they have to the first one's
//    backend, which sums; of a registered model the host sums what sinks were
//    given.
// 4. A sum begins when the first replica has made its next gradient, so that
//    what the others bring is there by then; and goes to `sink` while the
//    backward passes go on.
//
// Losses are added in the same order. No gradient goes to `sink` unless the
// losses of all replicas are finite. The first error, in the order of the
// replicas, is the model's; all have stopped before it is told. Evaluate() is
// the first replica's alone.
//
// With one backend it is CreateModel. The arguments are that function's;
// `backends` are all of one kind, each another object, and outlive the model.
// The first must end before the others.
// Errors: those of CreateModel; INVALID_ARGUMENT for several backends and a
// model with embedding tables.
absl::StatusOr<std::unique_ptr<Model>> CreateReplicatedModel(
    const proto::Model& config, const ExampleSpec& examples, uint64_t seed,
    absl::Span<Backend* const> backends, const ModelRegistry& registry);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_REPLICATED_H_
