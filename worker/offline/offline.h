// SPDX-License-Identifier: Apache-2.0

// Uses a job's checkpoint without a cluster (docs/evaluation.md).
#ifndef HOLDFAST_WORKER_OFFLINE_OFFLINE_H_
#define HOLDFAST_WORKER_OFFLINE_OFFLINE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/result.pb.h"
#include "worker/backend/backend.h"
#include "worker/backend/device.h"
#include "worker/job_data.h"
#include "worker/model/registry.h"

namespace holdfast {

struct OfflineOptions {
  // The folder of a checkpoint, or a checkpoint directory, whose newest durable
  // checkpoint is then used.
  std::string checkpoint;
  // The job. Absent: the declared job that the checkpoint contains, which has
  // no paths of data.
  std::optional<proto::Job> job;
  // Files to evaluate or predict on, as SetDataFiles takes them. Empty: the
  // job's test set.
  std::vector<std::string> data;
  DataOptions reading;
  // The device on which the model is computed. `device.precision` is ignored:
  // the job says which precision to use.
  Place place;
  DeviceOptions device;
};

// Evaluates the checkpoint's model on the data. If `int8`, also evaluates the
// model with its matrices and kernels rounded to 8-bit integers.
// Errors: INVALID_ARGUMENT when the job, the data and the checkpoint do not fit
// each other; those of the functions that read them.
absl::StatusOr<proto::CheckpointEvaluation> EvaluateCheckpoint(
    const OfflineOptions& options, bool int8, const ModelRegistry& models);

// Writes the predictions of the checkpoint's model for each example to the CSV
// file `output` (prediction_file.h), replacing an existing file. Labels,
// targets and weights in the data are ignored, and may be missing.
// Errors: as above; UNIMPLEMENTED when the model returns no outputs.
absl::Status PredictWithCheckpoint(const OfflineOptions& options,
                                   const std::string& output,
                                   const ModelRegistry& models);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_OFFLINE_OFFLINE_H_
