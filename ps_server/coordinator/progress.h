// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_PROGRESS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/job/ids.h"
#include "common/job/task_id.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "ps_server/protocol/indexed_map.h"

namespace holdfast {

// A push that counts.
struct AcceptedPush {
  TaskId worker;
  uint64_t examples = 0;
  // Mean over the examples, if known.
  std::optional<double> loss;
  // Set for asynchronous pushes.
  std::optional<uint64_t> staleness;
  // Whether it changed nothing because the loss or the gradient was not finite.
  bool not_finite = false;
};

// The progress of a job: its steps, when it last moved, how long it has
// trained, and the counts shown to users.
//
// Thread-compatible.
class Progress {
 public:
  Progress() = default;
  // Continues from the progress saved in `position`.
  explicit Progress(const proto::Position& position);
  // Called when the job resumes from `position`. Resets steps, counts and the
  // last evaluation to what they were there. If training has begun, the
  // training clock keeps running.
  void GoBack(const proto::Position& position);

  // Steps that every shard has committed; in an asynchronous job, tickets
  // spent.
  GlobalStep committed() const { return committed_; }
  void SetCommitted(GlobalStep step) { committed_ = step; }

  // When the open step was opened; in an asynchronous job, when a ticket was
  // last spent.
  absl::Time moved_at() const { return moved_at_; }
  void OnMoved(absl::Time now) { moved_at_ = now; }

  // When the first step had the workers that it needs; absent before that.
  // Training time is counted from then to the last commit.
  std::optional<absl::Time> training_begun() const { return training_begun_; }
  void OnTrainingBegun(absl::Time now) { training_begun_ = last_commit_ = now; }
  void OnCommit(absl::Time now) { last_commit_ = now; }

  // Examples in the steps so far, including steps that are decided but not yet
  // committed.
  uint64_t examples() const { return examples_; }
  // Returns the mean loss over the examples since the last call, or since the
  // generation began; absent if none of their losses is known.
  std::optional<double> TakeLoss();

  // Called when the result of an evaluation is reported. Ignores a result that
  // is older than the last.
  void OnEvaluation(const proto::EvaluationResult& result);

  // Adds the pushes that make up a step; in an asynchronous job, a single push.
  void AddStep(const std::vector<AcceptedPush>& pushes);
  // Counts a push that was refused.
  void AddRefused(proto::Verdict verdict);

  // Fills in examples, pushes, train_loss, workers, staleness, training_seconds
  // and evaluation.
  void AddTo(proto::GetStatusResponse* status) const;
  // Fills in the same fields for a checkpoint, with recent_losses instead of
  // train_loss, and without the evaluation.
  void AddTo(proto::Position* position) const;

 private:
  template <typename Message>
  void AddCountsTo(Message* message) const;

  // The loss of one step.
  struct StepLoss {
    uint64_t examples = 0;
    double loss_sum = 0;
  };
  struct Given {
    uint64_t pushes = 0;
    uint64_t examples = 0;
  };

  proto::PushCounts pushes_;
  uint64_t examples_ = 0;
  std::deque<StepLoss> recent_;
  // The loss since the last TakeLoss.
  StepLoss untaken_;
  IndexedMap<TaskId, Given> workers_;
  std::map<uint64_t, uint64_t> staleness_;

  GlobalStep committed_;
  absl::Time moved_at_;
  std::optional<absl::Time> training_begun_;
  // Training time, in seconds, before this coordinator's life.
  double training_seconds_before_ = 0;
  absl::Time last_commit_;
  std::optional<proto::EvaluationResult> evaluation_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_PROGRESS_H_
