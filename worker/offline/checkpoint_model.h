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

// Opens a checkpoint by the path of its folder, or the newest durable one of a
// checkpoint directory.
// Errors: NOT_FOUND, saying what is not there; those of CheckpointReader::Open.
absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenCheckpoint(
    const std::string& path);

// A job's model with the values of a checkpoint.
struct CheckpointModel {
  std::unique_ptr<Model> model;
  // Of the model's variables, in their order; the version is the checkpoint's
  // step.
  Parameters parameters;
  // Of the model's tables.
  CheckpointRows rows;

  RowSource ReadRows() const {
    return [this](Parameters* wanted) { return rows.Read(wanted); };
  }
};

// Makes the model of `job` for such examples and reads the values of its
// variables and of the rows of its tables.
// Errors: those of CreateModel and of `reader`; INVALID_ARGUMENT, with the
// name of variable or table, when the checkpoint has not what the model needs.
absl::StatusOr<CheckpointModel> LoadModel(CheckpointReader* reader,
                                          const proto::Job& job,
                                          const ExampleSpec& examples,
                                          const ModelRegistry& registry,
                                          Backend* backend);

// The same values with matrices and kernels rounded as an export to 8-bit
// integers rounds them (common/tensor/weight_quantization.h).
Parameters RoundedToInt8(const Parameters& parameters,
                         const std::vector<proto::Variable>& variables);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_OFFLINE_CHECKPOINT_MODEL_H_
