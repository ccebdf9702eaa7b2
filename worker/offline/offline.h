// What is done with a job's checkpoint without a cluster: docs/evaluation.md.
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
  // Folder of a checkpoint, or a checkpoint directory, of which the newest
  // durable checkpoint is meant.
  std::string checkpoint;
  // Default: the job file that the checkpoint's job was declared with, which
  // has no paths of data.
  std::optional<proto::Job> job;
  // Files to evaluate or predict on, as SetDataFiles takes them. Empty: the
  // job's test set.
  std::vector<std::string> data;
  DataOptions reading;
  // Where the values are computed. The precision is the job's.
  Place place;
  DeviceOptions device;
};

// Evaluates the checkpoint's model on the data. With `int8` also with its
// matrices and kernels rounded to 8-bit integers.
// Errors: INVALID_ARGUMENT when job, data and checkpoint do not fit; those of
// the parts.
absl::StatusOr<proto::CheckpointEvaluation> EvaluateCheckpoint(
    const OfflineOptions& options, bool int8, const ModelRegistry& models);

// Writes what the checkpoint's model predicts of each example to the CSV file
// `output` (prediction_file.h), in place of one that is there. Labels, targets
// and weights of the data are not looked at, and need not be there.
// Errors: as above; UNIMPLEMENTED when the model tells no outputs.
absl::Status PredictWithCheckpoint(const OfflineOptions& options,
                                   const std::string& output,
                                   const ModelRegistry& models);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_OFFLINE_OFFLINE_H_
