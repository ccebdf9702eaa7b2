// SPDX-License-Identifier: Apache-2.0
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

// Creates a job file's model with a replica on each of several backends. The
// replicas divide each batch among them and produce one gradient (TensorFlow
// calls this MirroredStrategy).
//
// 1. A batch is cut into as many ranges as there are replicas (CutBatch).
// 2. Each replica computes the gradient of its range, on its own thread; the
//    first replica computes on the caller's thread.
// 3. The gradient of a variable, or the value of a moving average, is
//
//      w[0] g[0] + w[1] g[1] + ...,  w[r] = examples of r / examples of all,
//
//    where g[r] comes from replica r. Terms are added from the left, with each
//    weight, product and sum rounded to float32, so that the bits do not depend
//    on timing, and equal those of as many micro-batches. For a sequential
//    model, gradients are copied to the first replica's backend and summed
//    there; for a registered model, the host sums what the sinks were given.
// 4. The sum of a gradient begins when the first replica has computed the
//    gradient after it, because the other replicas' terms have been copied by
//    then. The sum goes to `sink` while the backward passes continue.
// 5. On asynchronous backends, replicas begin their backward passes, and the
//    first begins to sum, before the losses are known. A sum goes to `sink`
//    once all losses are known to be finite.
//
// Losses are added in the same order. No gradient goes to `sink` unless the
// losses of all replicas are finite. If replicas fail, the model returns the
// error of the first of them, after all replicas have stopped. Evaluate() uses
// the first replica alone.
//
// With one backend this is the same as CreateModel. The arguments are those of
// CreateModel, except that `backends` are different objects of the same kind,
// which must outlive the model. The first backend must be destroyed before the
// others.
// Errors: those of CreateModel; INVALID_ARGUMENT for a model with embedding
// tables on several backends.
absl::StatusOr<std::unique_ptr<Model>> CreateReplicatedModel(
    const proto::Model& config, const ExampleSpec& examples, uint64_t seed,
    absl::Span<Backend* const> backends, const ModelRegistry& registry);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_REPLICATED_H_
