// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_PATIENCE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_PATIENCE_H_

#include <vector>

#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "ps_server/coordinator/end.h"
#include "ps_server/coordinator/job.h"
#include "ps_server/coordinator/restore.h"
#include "ps_server/coordinator/save.h"

namespace holdfast {

// Ends a job that has waited for too long, naming what it waited for: every
// wait has a limit (see the tables at the end of
// docs/protocol/life_of_a_step.md and docs/protocol/asynchronous.md).
//
// Thread-compatible.
class Patience {
 public:
  Patience(Job* job, const Restore* restore, const Save* save, const End* end)
      : job_(job), restore_(restore), save_(save), end_(end) {}

  // Called when a missing task is back.
  void OnBack() { missing_until_ = job_->clock->Now(); }

  // Ends the job if a wait has exceeded its limit. Call it at each tick.
  void Judge();

 private:
  // The lost tasks that the job waits for, and when the first of them was lost.
  struct Lost {
    std::vector<TaskId> tasks;
    absl::Time since = absl::InfiniteFuture();
  };
  Lost LostTasks() const;
  void JudgeDone(absl::Time now);
  void JudgeLost(const Lost& lost, absl::Time now);
  void JudgeRestore(absl::Time now);
  void JudgeEnd(absl::Time now);
  void JudgeStart(absl::Time now);
  void JudgeStep(absl::Time now);

  Job* const job_;
  const Restore* const restore_;
  const Save* const save_;
  const End* const end_;
  // When a task was last missing. The time limit of the open step is counted
  // from then at the earliest.
  absl::Time missing_until_ = absl::InfinitePast();
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_PATIENCE_H_
