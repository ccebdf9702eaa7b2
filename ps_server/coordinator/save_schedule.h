#ifndef HOLDFAST_PS_SERVER_COORDINATOR_SAVE_SCHEDULE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_SAVE_SCHEDULE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/training.pb.h"

namespace holdfast {

// When a checkpoint is due by the number of steps or by time.
//
// Steps of a synchronous job are counted one by one, so its checkpoints are at
// exact multiples of every_steps; a multiple that is reached while an earlier
// checkpoint is being written is skipped. Asynchronous pushes are seen several
// at a time: there the first opportunity after a multiple counts.
//
// Where the job sets neither every_steps nor every_seconds, checkpoints follow
// their own cost: the time from the beginning of one to its end is at most 2 %
// of the time between two, which is at least a minute.
//
// Thread-compatible.
class SaveSchedule {
 public:
  static constexpr absl::Duration kLeastEvery = absl::Minutes(1);
  // Times the cost of the last checkpoint.
  static constexpr int kLeastTimesCost = 50;

  // A generation goes on from `step`, of which a checkpoint exists, or which is
  // the first. The cost of earlier checkpoints is remembered.
  void Begin(const proto::Checkpoints& when, bool asynchronous, uint64_t step,
             absl::Time now);

  // To be asked between two steps, while no checkpoint is being written.
  bool IsDue(uint64_t step, absl::Time now) const;

  // The times of one checkpoint, whatever the reason for it. After one that
  // failed, the next by steps is due at once.
  void OnBegun(uint64_t step, absl::Time now);
  void OnSaved(absl::Time now);
  void OnFailed(absl::Time now);

  absl::Time begun() const { return begun_; }
  // Time from one beginning to the next. Infinite: not by time.
  absl::Duration every() const;

 private:
  proto::Checkpoints when_;
  bool asynchronous_ = false;
  bool last_failed_ = false;
  // Of the last one.
  absl::Time begun_ = absl::InfinitePast();
  uint64_t step_ = 0;
  // Of the last that was saved.
  uint64_t saved_step_ = 0;
  absl::Duration cost_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_SAVE_SCHEDULE_H_
