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

// Tells people what the coordinator does: in the log its events and the job's
// phases, for TensorBoard the course of the job, and for the watchdog what the
// job waits for.
//
// Called from the coordinator's strand, and once that has stopped; wait() from
// any thread.
class JobObserver {
 public:
  struct Options {
    // Number of the last event that is in the log of an earlier coordinator of
    // the job. 0: none is.
    uint64_t known_event = 0;
    // Folder that TensorBoard reads. Empty: nothing is written for it.
    std::string tensorboard_dir;
  };

  // `coordinator` must outlive the observer. Errors: those of
  // TensorBoard::Start.
  static absl::StatusOr<std::unique_ptr<JobObserver>> Start(
      const Options& options, Coordinator* coordinator);

  JobObserver(const JobObserver&) = delete;
  JobObserver& operator=(const JobObserver&) = delete;

  // Call it after each of the coordinator's ticks.
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells what has happened since the last Look. Call it once the strand has
  // stopped.
  void LookOnceMore();

  // What the job waits for, and since when; as of at most a second ago.
  std::optional<Watchdog::Wait> wait() const ABSL_LOCKS_EXCLUDED(mutex_);

  // False when a disk has not taken all that is for TensorBoard after
  // `patience`: then this object has to outlive the process.
  bool Stop(absl::Duration patience);

 private:
  JobObserver(uint64_t known_event, Coordinator* coordinator)
      : coordinator_(coordinator), logged_event_(known_event) {}

  void LogEvents();
  void LogPhase();
  void LookAtWait(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  Coordinator* const coordinator_;
  // As in the log.
  uint64_t logged_event_;
  proto::JobPhase logged_phase_ = proto::STARTING;
  // When to look next at what need not be seen with each tick.
  absl::Time next_look_ = absl::InfinitePast();
  // Null: nothing is written.
  std::unique_ptr<TensorBoard> tensor_board_;

  mutable absl::Mutex mutex_;
  // Empty: the job waits for nothing.
  std::string waits_for_ ABSL_GUARDED_BY(mutex_);
  absl::Time waits_since_ ABSL_GUARDED_BY(mutex_);
  // The generation in which it waits.
  uint64_t waits_in_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_JOB_OBSERVER_H_
