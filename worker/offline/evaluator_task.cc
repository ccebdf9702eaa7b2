// SPDX-License-Identifier: Apache-2.0
#include "worker/offline/evaluator_task.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/file_system.h"
#include "common/data/computed_fields.h"
#include "common/job/job_file.h"
#include "glog/logging.h"
#include "worker/job_resolution.h"
#include "worker/offline/checkpoint_model.h"
#include "worker/trainer/evaluator.h"
#include "worker/trainer/scores.h"

namespace holdfast {

absl::Status EvaluateAll(
    Cluster* cluster,
    const std::function<absl::StatusOr<proto::EvaluationResult>(
        const proto::CheckpointName& name)>& evaluate,
    const std::function<void()>& pause) {
  int unread = 0;
  for (;;) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto next,
                              cluster->NextEvaluation(absl::InfiniteFuture()));
    if (!next.has_value()) return absl::OkStatus();
    const auto result = evaluate(*next);
    const absl::Status& status = result.status();
    if (absl::IsNotFound(status) || absl::IsDataLoss(status)) {
      // The job may have been rolled back to a step before this checkpoint.
      LOG(WARNING) << "a checkpoint cannot be read: " << status.message();
      if (++unread == kReadAttempts) return status;
      pause();
      continue;
    }
    if (!status.ok()) return status;
    unread = 0;
    HOLDFAST_RETURN_IF_ERROR(
        cluster->ReportEvaluation(*result, *next, absl::InfiniteFuture()));
  }
}

absl::StatusOr<std::unique_ptr<EvaluatorTask>> EvaluatorTask::Open(
    const Options& options, const ModelRegistry& models) {
  if (options.checkpoint_dir.empty()) {
    return absl::InvalidArgumentError(
        "--checkpoint_dir is required: the checkpoint directory of the ps, "
        "whose checkpoints an evaluator reads");
  }
  std::unique_ptr<EvaluatorTask> task(new EvaluatorTask(options, models));
  const proto::Data& data = options.job.data();
  if (!data.has_test() && !data.has_holdout()) {
    return absl::InvalidArgumentError(
        "the job has nothing to evaluate on: it needs data.test or "
        "data.holdout");
  }
  if (!HasOpenFields(data)) {
    HOLDFAST_RETURN_IF_ERROR(task->OpenTestSet());
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto backend,
                            CreateBackend(options.place, options.device));
  task->backend_ = std::move(backend);
  return task;
}

absl::Status EvaluatorTask::OpenTestSet() {
  const proto::Data& data = options_.job.data();
  absl::StatusOr<std::unique_ptr<Dataset>> test_set;
  if (data.has_test()) {
    test_set = OpenJobDataset(data.test(), data, options_.reading, "evaluate");
  } else {
    HOLDFAST_ASSIGN_OR_RETURN(const auto opened,
                              JobData::Open(data, options_.reading));
    test_set = opened.OpenTestSet();
  }
  if (!test_set.ok()) return test_set.status();
  test_set_ = *std::move(test_set);
  return absl::OkStatus();
}

// The ps tasks create the directory before any task can join them, perhaps only
// shortly before.
absl::Status EvaluatorTask::Run(Cluster* cluster) {
  const auto directory = CheckpointDirectory::OpenToRead(
      options_.checkpoint_dir, PosixFileSystem());
  if (!directory.ok()) {
    return absl::Status(
        directory.status().code(),
        absl::StrCat("--checkpoint_dir: ", directory.status().message()));
  }
  return EvaluateAll(
      cluster,
      [&](const proto::CheckpointName& name) {
        return Evaluate(*directory, name);
      },
      [] { absl::SleepFor(absl::Seconds(1)); });
}

absl::StatusOr<proto::EvaluationResult> EvaluatorTask::Evaluate(
    const CheckpointDirectory& directory, const proto::CheckpointName& name) {
  const absl::Time begin = SteadyNow();
  HOLDFAST_ASSIGN_OR_RETURN(auto reader,
                            CheckpointReader::Open(directory, name));
  if (test_set_ == nullptr) {
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto declared, DeclaredJobFile(reader->manifest().declaration()));
    absl::Status status = ResolveFrom(declared, &options_.job);
    if (status.ok()) status = OpenTestSet();
    // An error here does not come from the checkpoint's files.
    if (!status.ok()) return absl::InvalidArgumentError(status.message());
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto loaded, LoadModel(reader.get(), options_.job, test_set_->spec(),
                             models_, backend_.get()));
  const proto::Evaluation& config = options_.job.evaluation();
  absl::Status status =
      CheckScores(config, loaded.model->Outputs(), test_set_->spec());
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto scores,
                            EvaluateOn(*test_set_, config, loaded.parameters,
                                       loaded.ReadRows(), loaded.model.get(),
                                       /*cancelled=*/nullptr));
  LOG(INFO) << DescribeEvaluation(scores.result) << " (" << SteadyNow() - begin
            << ")";
  return scores.result;
}

}  // namespace holdfast
