// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_OFFLINE_CHECKPOINT_MODEL_H_
#define HOLDFAST_WORKER_OFFLINE_CHECKPOINT_MODEL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cluster.h"
#include "common/checkpoint/data_file.h"
#include "common/data/example_source.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/model.h"
#include "worker/model/registry.h"
#include "worker/offline/checkpoint_rows.h"
#include "worker/trainer/batch_rows.h"

namespace holdfast {

// Opens the checkpoint in the folder `path` or, if `path` is a checkpoint
// directory, the newest durable checkpoint in it.
// Errors: NOT_FOUND, saying what is missing; those of CheckpointReader::Open.
absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenCheckpoint(
    const std::string& path);

// A job's model with the values of a checkpoint.
struct CheckpointModel {
  std::unique_ptr<Model> model;
  // The values of the model's variables, in the order of Model::Variables.
  // Their version is the checkpoint's step.
  Parameters parameters;
  // The rows of the model's tables.
  CheckpointRows rows;

  RowSource ReadRows() const {
    return [this](Parameters* wanted) { return rows.Read(wanted); };
  }
};

// Creates the model of `job` for examples like `examples`, and reads the values
// of its variables and of its tables' rows.
// Errors: those of CreateModel and of `reader`; INVALID_ARGUMENT, with the name
// of the variable or table, when the checkpoint lacks what the model needs.
absl::StatusOr<CheckpointModel> LoadModel(CheckpointReader* reader,
                                          const proto::Job& job,
                                          const ExampleSpec& examples,
                                          const ModelRegistry& registry,
                                          Backend* backend);

// Returns `parameters` with matrices and kernels rounded as in an export to
// 8-bit integers (common/tensor/weight_quantization.h).
Parameters RoundedToInt8(const Parameters& parameters,
                         const std::vector<proto::Variable>& variables);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_OFFLINE_CHECKPOINT_MODEL_H_
