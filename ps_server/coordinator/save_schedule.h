// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_SAVE_SCHEDULE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_SAVE_SCHEDULE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/training.pb.h"

namespace holdfast {

// Decides when a checkpoint is due, by the number of steps or by time.
//
// Steps of a synchronous job are counted one by one, so its checkpoints are at
// exact multiples of every_steps; a multiple reached while an earlier
// checkpoint is being written is skipped. Asynchronous pushes are seen several
// at a time, so the checkpoint is taken at the first opportunity after a
// multiple.
//
// If the job sets neither every_steps nor every_seconds, checkpoints are spaced
// by their own cost: the time that one takes from beginning to end is at most 2
// % of the time between two, which is at least a minute.
//
// Thread-compatible.
class SaveSchedule {
 public:
  static constexpr absl::Duration kLeastEvery = absl::Minutes(1);
  // The minimum time between two checkpoints, as a multiple of the duration of
  // the last one.
  static constexpr int kLeastTimesCost = 50;

  // Called when a generation resumes from `step`, which is the first step or
  // has a checkpoint. The cost of earlier checkpoints is remembered.
  void Begin(const proto::Checkpoints& when, bool asynchronous, uint64_t step,
             absl::Time now);

  // Whether a checkpoint is due at `step`. Call it between two steps, while no
  // checkpoint is being written.
  bool IsDue(uint64_t step, absl::Time now) const;

  // Called when a checkpoint has been begun, is saved, or has failed, whatever
  // the reason for taking it. After a failure, the next checkpoint is due at
  // once if a multiple of every_steps has passed since the last one that was
  // saved.
  void OnBegun(uint64_t step, absl::Time now);
  void OnSaved(absl::Time now);
  void OnFailed(absl::Time now);

  absl::Time begun() const { return begun_; }
  // The time from the beginning of one checkpoint to the beginning of the next.
  // Infinite if checkpoints are not taken by time.
  absl::Duration every() const;

 private:
  proto::Checkpoints when_;
  bool asynchronous_ = false;
  bool last_failed_ = false;
  // When and at which step the last checkpoint was begun.
  absl::Time begun_ = absl::InfinitePast();
  uint64_t step_ = 0;
  // The step of the last checkpoint that was saved, and the time that it took.
  uint64_t saved_step_ = 0;
  absl::Duration cost_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_SAVE_SCHEDULE_H_
