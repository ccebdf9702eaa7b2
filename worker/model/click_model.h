// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_CLICK_MODEL_H_
#define HOLDFAST_WORKER_MODEL_CLICK_MODEL_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/data/example_source.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/network_model.h"

namespace holdfast {

// Returns whether the job file's model is one of the click models
// (docs/click_models.md): logistic_regression, factorization_machine,
// wide_and_deep, deep_fm or dlrm.
bool IsClickModel(const proto::Model& config);

// Creates a click model for examples like `examples`, which must have ids. The
// model's one output is the logit of label 1. `seed` and `backend` are as in
// CreateSequential. The model has the tables "linear", whose rows have one
// weight, and "embedding", or only the one that it needs.
// Errors: INVALID_ARGUMENT when the examples have no ids, or lack numbers that
// the model needs, or when layers do not fit; those of NetworkModel::Create.
absl::StatusOr<std::unique_ptr<NetworkModel>> CreateClickModel(
    const proto::Model& config, const ExampleSpec& examples, uint64_t seed,
    Backend* backend);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_CLICK_MODEL_H_
