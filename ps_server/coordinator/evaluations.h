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
// Whether the journal has that checkpoint of the job's line; null: it has none
// of that step.
const proto::CheckpointName* FindCheckpoint(const proto::Journal& journal,
                                            uint64_t step);

// What evaluations have found, and what follows from it: which checkpoint is to
// be evaluated next, which are kept as the best, and whether the job ends early
// (docs/evaluation.md). Results of steps that the job has gone back behind are
// forgotten.
//
// Thread-compatible.
class Evaluations {
 public:
  // Results that are kept; those of the best checkpoints, and the best for
  // early stopping, in any case.
  static constexpr size_t kMost = 1000;

  explicit Evaluations(const JobDeclaration* declared) : declared_(declared) {}

  void TakeUp(const proto::Journal& journal);
  // The job goes on from `step`.
  void GoBack(uint64_t step);

  // Replaces one of the same step. `by_evaluator`: an evaluator reports it, of
  // a checkpoint; otherwise a worker does, of its values.
  void Add(const proto::EvaluationResult& result, bool by_evaluator);
  bool Has(uint64_t step) const { return results_.count(step) > 0; }
  // Something follows from results: they are kept in the journal.
  bool decide() const;
  void AddTo(proto::Journal* journal) const;

  // ---- Which checkpoint is evaluated next ----

  struct Moment {
    absl::Time now;
    // Of the first step.
    std::optional<absl::Time> training_begun;
    // No checkpoint follows those of the journal. The last one is due until an
    // evaluator has reported it, whatever the chief has found of that step: an
    // evaluator may compute other figures, and comes at any time.
    bool done = false;
  };
  // The one to give to an evaluator. Nothing: none is due.
  std::optional<proto::CheckpointName> NextDue(const proto::Journal& journal,
                                               const Moment& moment) const;
  // It is `evaluator`'s, in place of what that had before.
  void Assign(const TaskId& evaluator, const proto::CheckpointName& name,
              absl::Time now);
  void Release(const TaskId& evaluator) { assigned_.erase(evaluator); }
  const std::map<TaskId, proto::CheckpointName>& assigned() const {
    return assigned_;
  }
  // The checkpoint is not to be removed: it is being evaluated, or must be.
  bool Holds(const proto::CheckpointName& name) const;

  // ---- The best ----

  // Of the checkpoints that are on disk, the best first.
  std::vector<proto::CheckpointName> Best(const proto::Journal& journal) const;
  // The checkpoint cannot be kept.
  void Forsake(const proto::CheckpointName& name);

  // ---- Early stopping ----

  // The step whose evaluation was one too many without an improvement.
  std::optional<uint64_t> StopAfter() const;
  // Absent: the job has no early stopping.
  std::optional<proto::EarlyStoppingStatus> status() const;
  // Steps are evaluated at fixed steps, this many apart. 0: they are not.
  uint64_t fixed_every() const;
  // A checkpoint of `step` has to be on disk before the next step is made.
  bool NeedsCheckpointOf(uint64_t step) const;
  // Whether `step` may be committed: at a step that is to be evaluated, when
  // its checkpoint is on disk and the one before is evaluated, and the job does
  // not end here. Otherwise
  // `*missing`, if that is not null, is the step whose evaluation is missing,
  // or nothing where it is the checkpoint.
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
  // By step.
  std::map<uint64_t, proto::EvaluationResult> results_;
  // The newest step that an evaluator has reported since this process started;
  // 0: none.
  uint64_t newest_by_evaluator_ = 0;
  // By generation and step.
  std::set<std::pair<uint64_t, uint64_t>> forsaken_;
  std::map<TaskId, proto::CheckpointName> assigned_;
  absl::Time last_assigned_ = absl::InfinitePast();
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_EVALUATIONS_H_
