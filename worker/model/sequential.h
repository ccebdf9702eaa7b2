// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_SEQUENTIAL_H_
#define HOLDFAST_WORKER_MODEL_SEQUENTIAL_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/data/example_source.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/network_model.h"

namespace holdfast {

// Creates the model that a job file describes as a sequence of layers and a
// loss, for examples like `examples`. Randomness in training follows from
// `seed`, the layer's place in the sequence, the example's position in the
// training stream, and the element. `backend` must outlive the model. Gradients
// come in the reverse order of Variables().
// Errors: INVALID_ARGUMENT, with the layer's name, when layers do not fit each
// other, when two have the same name, or when there is nothing to train; those
// of NetworkModel::Create.
absl::StatusOr<std::unique_ptr<NetworkModel>> CreateSequential(
    const proto::Sequential& config, const ExampleSpec& examples, uint64_t seed,
    Backend* backend);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_SEQUENTIAL_H_
