// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_JOB_OBSERVER_H_
#define HOLDFAST_PS_SERVER_JOB_OBSERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/process/watchdog.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/tensorboard/tensor_board.h"

namespace holdfast {

// Reports what the coordinator does: its events and the job's phases to the
// log, the job's progress to TensorBoard, and what the job waits for to the
// watchdog.
//
// Called from the coordinator's strand, or after the strand has stopped; wait()
// may be called from any thread.
class JobObserver {
 public:
  struct Options {
    // Number of the last event that an earlier coordinator of the job logged; 0
    // if there is none.
    uint64_t known_event = 0;
    // Folder that TensorBoard reads. If it is empty, nothing is written for
    // TensorBoard.
    std::string tensorboard_dir;
  };

  // `coordinator` must outlive the observer. Errors: those of
  // TensorBoard::Start.
  static absl::StatusOr<std::unique_ptr<JobObserver>> Start(
      const Options& options, Coordinator* coordinator);

  JobObserver(const JobObserver&) = delete;
  JobObserver& operator=(const JobObserver&) = delete;

  // Reports what has happened since the last Look. Call it after each of the
  // coordinator's ticks.
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);
  // Like Look, for the last time. Call it after the strand has stopped.
  void LookOnceMore();

  // What the job waits for, and how long it has waited; nullopt if it waits for
  // nothing. The answer is at most a second old.
  std::optional<Watchdog::Wait> wait() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until everything for TensorBoard is written. Returns false if that
  // takes longer than `patience`; this object must then not be destroyed.
  bool Stop(absl::Duration patience);

 private:
  JobObserver(uint64_t known_event, Coordinator* coordinator)
      : coordinator_(coordinator), logged_event_(known_event) {}

  void LogEvents();
  void LogPhase();
  void LookAtWait(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  Coordinator* const coordinator_;
  // The last event and the last phase that were logged.
  uint64_t logged_event_;
  proto::JobPhase logged_phase_ = proto::STARTING;
  // The time from which Look next examines what it does not examine at every
  // tick.
  absl::Time next_look_ = absl::InfinitePast();
  // Null if nothing is written for TensorBoard.
  std::unique_ptr<TensorBoard> tensor_board_;

  mutable absl::Mutex mutex_;
  // Empty if the job waits for nothing.
  std::string waits_for_ ABSL_GUARDED_BY(mutex_);
  absl::Time waits_since_ ABSL_GUARDED_BY(mutex_);
  // The generation in which the job waits.
  uint64_t waits_in_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_JOB_OBSERVER_H_
