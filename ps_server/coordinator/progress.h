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
  // Mean over the examples, where it is known.
  std::optional<double> loss;
  // Of an asynchronous push.
  std::optional<uint64_t> staleness;
  // It changed nothing because loss or gradient was not finite.
  bool not_finite = false;
};

// What a job has come to so far: its steps, when it last moved, how long it has
// trained, and the counts for people.
//
// Thread-compatible.
class Progress {
 public:
  Progress() = default;
  // As it was saved.
  explicit Progress(const proto::Position& position);
  // The job goes on from `position`: steps, counts and a worker's evaluation
  // are as they were there. Training goes on where it has begun.
  void GoBack(const proto::Position& position);

  // Steps that every shard has committed; asynchronous: tickets spent.
  GlobalStep committed() const { return committed_; }
  void SetCommitted(GlobalStep step) { committed_ = step; }

  // When the open step was opened; asynchronous: when a ticket was last spent.
  absl::Time moved_at() const { return moved_at_; }
  void OnMoved(absl::Time now) { moved_at_ = now; }

  // The first step had the workers that it needs: the time of training runs
  // from there to the last commit.
  std::optional<absl::Time> training_begun() const { return training_begun_; }
  void OnTrainingBegun(absl::Time now) { training_begun_ = last_commit_ = now; }
  void OnCommit(absl::Time now) { last_commit_ = now; }

  // Behind the steps so far, those that are decided and not committed yet among
  // them.
  uint64_t examples() const { return examples_; }
  // Mean over the examples since it was last taken, or the generation began;
  // none where no loss of them is known.
  std::optional<double> TakeLoss();

  // As a worker told; an older one than before does nothing.
  void OnEvaluation(const proto::EvaluationResult& result);

  // The pushes that a step is made of; in asynchronous jobs, one.
  void AddStep(const std::vector<AcceptedPush>& pushes);
  // A push that does not count.
  void AddRefused(proto::Verdict verdict);

  // Fills in examples, pushes, train_loss, workers, staleness, training_seconds
  // and evaluation.
  void AddTo(proto::GetStatusResponse* status) const;
  // The same for a checkpoint, with recent_losses in train_loss' place and
  // without the evaluation.
  void AddTo(proto::Position* position) const;

 private:
  template <typename Message>
  void AddCountsTo(Message* message) const;

  // Of one step.
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
  // Since it was last taken.
  StepLoss untaken_;
  IndexedMap<TaskId, Given> workers_;
  std::map<uint64_t, uint64_t> staleness_;

  GlobalStep committed_;
  absl::Time moved_at_;
  std::optional<absl::Time> training_begun_;
  // Before this coordinator's life.
  double training_seconds_before_ = 0;
  absl::Time last_commit_;
  std::optional<proto::EvaluationResult> evaluation_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_PROGRESS_H_
