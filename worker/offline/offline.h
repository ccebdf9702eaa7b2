// SPDX-License-Identifier: Apache-2.0

// Uses of a job's checkpoint without a cluster: docs/evaluation.md.
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
  // The folder of a checkpoint, or a checkpoint directory, which stands for its
  // newest durable checkpoint.
  std::string checkpoint;
  // Default: the job that the checkpoint contains as declared, which has no
  // data paths.
  std::optional<proto::Job> job;
  // Files to evaluate or predict on, as SetDataFiles takes them. Empty: the
  // job's test set.
  std::vector<std::string> data;
  DataOptions reading;
  // Where the model is computed. The precision is the job's.
  Place place;
  DeviceOptions device;
};

// Evaluates the checkpoint's model on the data; with `int8`, also with its
// matrices and kernels rounded to 8-bit integers.
// Errors: INVALID_ARGUMENT when job, data and checkpoint do not fit each other;
// those of the functions that read them.
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
