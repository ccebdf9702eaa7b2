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
  // The number of results kept. Those of the best checkpoints, and the best
  // result for early stopping, are always kept.
  static constexpr size_t kMost = 1000;

  explicit Evaluations(const JobDeclaration* declared) : declared_(declared) {}

  void TakeUp(const proto::Journal& journal);
  // The job resumes from `step`.
  void GoBack(uint64_t step);

  // Replaces an earlier result for the same step. `by_evaluator`: an evaluator
  // reports the result for a checkpoint; otherwise a worker reports it for its
  // own values.
  void Add(const proto::EvaluationResult& result, bool by_evaluator);
  bool Has(uint64_t step) const { return results_.count(step) > 0; }
  // Whether decisions depend on results, so that they are kept in the journal.
  bool decide() const;
  void AddTo(proto::Journal* journal) const;

  // ---- Which checkpoint is evaluated next ----

  struct Moment {
    absl::Time now;
    // When training began, if it has.
    std::optional<absl::Time> training_begun;
    // No checkpoint will follow those in the journal. The last one is due until
    // an evaluator has reported on it, even if the chief has evaluated that
    // step: an evaluator may compute other figures, and may join at any time.
    bool done = false;
  };
  // The checkpoint to give to an evaluator; nothing if none is due.
  std::optional<proto::CheckpointName> NextDue(const proto::Journal& journal,
                                               const Moment& moment) const;
  // Assigns the checkpoint to `evaluator`, in place of its earlier one.
  void Assign(const TaskId& evaluator, const proto::CheckpointName& name,
              absl::Time now);
  void Release(const TaskId& evaluator) { assigned_.erase(evaluator); }
  const std::map<TaskId, proto::CheckpointName>& assigned() const {
    return assigned_;
  }
  // Whether the checkpoint must not be removed, because it is being evaluated
  // or has yet to be.
  bool Holds(const proto::CheckpointName& name) const;

  // ---- The best ----

  // The best of the checkpoints on disk, best first.
  std::vector<proto::CheckpointName> Best(const proto::Journal& journal) const;
  // Records that the checkpoint cannot be kept.
  void Forsake(const proto::CheckpointName& name);

  // ---- Early stopping ----

  // The step at which evaluations had brought no improvement for too long;
  // nothing if that has not happened.
  std::optional<uint64_t> StopAfter() const;
  // Absent if the job has no early stopping.
  std::optional<proto::EarlyStoppingStatus> status() const;
  // The distance between evaluations at fixed steps; 0 if the job does not
  // evaluate at fixed steps.
  uint64_t fixed_every() const;
  // Whether a checkpoint of `step` must be on disk before the next step is
  // made.
  bool NeedsCheckpointOf(uint64_t step) const;
  // Whether `step` may be committed. A step that must be evaluated may be when
  // its checkpoint is on disk, the one before it has been evaluated, and the
  // job does not end here. Otherwise `*missing`, unless `missing` is null, is
  // set to the step whose evaluation is missing; it is left unchanged if the
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
