// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_OFFLINE_EVALUATOR_TASK_H_
#define HOLDFAST_WORKER_OFFLINE_EVALUATOR_TASK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/checkpoint/directory.h"
#include "common/data/dataset.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/backend/device.h"
#include "worker/job_data.h"
#include "worker/model/registry.h"

namespace holdfast {

// Evaluates each checkpoint that the coordinator names, and reports the result,
// until there are no more. If a checkpoint cannot be read, calls `pause` and
// asks the coordinator for a checkpoint again, up to kReadAttempts times in a
// row.
// Errors: those of the cluster; those of `evaluate`, where NOT_FOUND and
// DATA_LOSS mean that the checkpoint's files cannot be read.
absl::Status EvaluateAll(
    Cluster* cluster,
    const std::function<absl::StatusOr<proto::EvaluationResult>(
        const proto::CheckpointName& name)>& evaluate,
    const std::function<void()>& pause);
// How many times in a row EvaluateAll tries to read a checkpoint before it
// returns the error.
inline constexpr int kReadAttempts = 10;

// A task that evaluates a job's checkpoints while the job runs
// (docs/evaluation.md).
//
// Thread-compatible.
class EvaluatorTask {
 public:
  struct Options {
    proto::Job job;
    // The ps tasks' --checkpoint_dir.
    std::string checkpoint_dir;
    DataOptions reading;
    Place place;
    DeviceOptions device;
  };

  // Opens the test set. If the job file leaves fields to be computed from the
  // training set, the test set is opened later, because the declared values of
  // these fields are in the first checkpoint. `models` must outlive the task.
  // Errors: INVALID_ARGUMENT or NOT_FOUND, with the flag or the field of the
  // job that is wrong.
  static absl::StatusOr<std::unique_ptr<EvaluatorTask>> Open(
      const Options& options, const ModelRegistry& models);

  // Errors: those of EvaluateAll; NOT_FOUND when there is no checkpoint
  // directory.
  absl::Status Run(Cluster* cluster);

 private:
  EvaluatorTask(const Options& options, const ModelRegistry& models)
      : options_(options), models_(models) {}

  // Opens the test set of options_.job.
  absl::Status OpenTestSet();
  absl::StatusOr<proto::EvaluationResult> Evaluate(
      const CheckpointDirectory& directory, const proto::CheckpointName& name);

  Options options_;
  const ModelRegistry& models_;
  // Null until the test set is open.
  std::unique_ptr<Dataset> test_set_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_OFFLINE_EVALUATOR_TASK_H_
