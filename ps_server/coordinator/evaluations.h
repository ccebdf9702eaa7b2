// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_EVALUATIONS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_EVALUATIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/job_declaration.h"

namespace holdfast {

bool SameCheckpoint(const proto::CheckpointName& a,
                    const proto::CheckpointName& b);
// The journal's checkpoint of `step`, or null if it has none.
const proto::CheckpointName* FindCheckpoint(const proto::Journal& journal,
                                            uint64_t step);

// The results of evaluations, and what follows from them: which checkpoint to
// evaluate next, which ones to keep as the best, and whether the job ends early
// (docs/evaluation.md). When the job goes back to a step, results of later
// steps are forgotten.
//
// Thread-compatible.
class Evaluations {
 public:
  // The number of results kept: the newest ones. The results of the best
  // checkpoints, and the best result for early stopping, are kept in any case.
  static constexpr size_t kMost = 1000;

  explicit Evaluations(const JobDeclaration* declared) : declared_(declared) {}

  void TakeUp(const proto::Journal& journal);
  // Called when the job resumes from `step`: forgets the results of later
  // steps.
  void GoBack(uint64_t step);

  // Adds a result, in place of an earlier one for the same step. If
  // `by_evaluator`, an evaluator reports it, for a checkpoint; otherwise a
  // worker reports it, for the values that it has.
  void Add(const proto::EvaluationResult& result, bool by_evaluator);
  bool Has(uint64_t step) const { return results_.count(step) > 0; }
  // Whether decisions depend on results. If so, results are kept in the
  // journal.
  bool decide() const;
  void AddTo(proto::Journal* journal) const;

  // ---- Which checkpoint is evaluated next ----

  struct Moment {
    absl::Time now;
    // When training began, if it has.
    std::optional<absl::Time> training_begun;
    // Whether the job is done: no checkpoint will follow those in the journal.
    // Then the last one is due until an evaluator has reported its result, even
    // if the chief has evaluated the same step, because an evaluator may
    // compute other metrics, and may join at any time.
    bool done = false;
  };
  // The checkpoint that an evaluator gets next; absent if none is due.
  std::optional<proto::CheckpointName> NextDue(const proto::Journal& journal,
                                               const Moment& moment) const;
  // Assigns the checkpoint to `evaluator`, in place of the one that it had.
  void Assign(const TaskId& evaluator, const proto::CheckpointName& name,
              absl::Time now);
  void Release(const TaskId& evaluator) { assigned_.erase(evaluator); }
  const std::map<TaskId, proto::CheckpointName>& assigned() const {
    return assigned_;
  }
  // Whether the checkpoint must not be removed, because it is being evaluated
  // or must still be evaluated.
  bool Holds(const proto::CheckpointName& name) const;

  // ---- The best ----

  // The checkpoints on disk that have the best results, the best one first.
  std::vector<proto::CheckpointName> Best(const proto::Journal& journal) const;
  // Records that the checkpoint cannot be kept among the best.
  void Forsake(const proto::CheckpointName& name);

  // ---- Early stopping ----

  // The step of the evaluation that used up the patience of early stopping: it
  // was the last of `patience` evaluations in a row without an improvement.
  // Absent if there was none.
  std::optional<uint64_t> StopAfter() const;
  // Absent if the job has no early stopping.
  std::optional<proto::EarlyStoppingStatus> status() const;
  // The distance between evaluations at fixed steps; 0 if the job does not
  // evaluate at fixed steps.
  uint64_t fixed_every() const;
  // Whether a checkpoint of `step` must be on disk before the next step is
  // made.
  bool NeedsCheckpointOf(uint64_t step) const;
  // Whether step `step` may be committed. If version `step` must be evaluated,
  // the step may be committed once the checkpoint of that version is on disk,
  // the previous version that must be evaluated has been evaluated, and the job
  // does not end here. Otherwise `*missing`, unless `missing` is null, is set
  // to the step whose evaluation is missing; it is left unchanged if the
  // checkpoint is missing.
  bool MayCommit(uint64_t step, const proto::Journal& journal,
                 std::optional<uint64_t>* missing = nullptr) const;

 private:
  struct Improvement {
    std::optional<double> best;
    uint64_t best_step = 0;
    uint32_t without = 0;
    std::optional<uint64_t> stop_after;
  };
  Improvement Improve() const;
  const proto::Evaluation& config() const;
  void Trim();

  const JobDeclaration* const declared_;
  // Keyed by step.
  std::map<uint64_t, proto::EvaluationResult> results_;
  // The newest step that an evaluator has reported since this process started;
  // 0 if none.
  uint64_t newest_by_evaluator_ = 0;
  // Generations and steps of checkpoints that cannot be kept.
  std::set<std::pair<uint64_t, uint64_t>> forsaken_;
  std::map<TaskId, proto::CheckpointName> assigned_;
  absl::Time last_assigned_ = absl::InfinitePast();
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_EVALUATIONS_H_
