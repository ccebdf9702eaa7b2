#ifndef HOLDFAST_PS_SERVER_MEMBERSHIP_H_
#define HOLDFAST_PS_SERVER_MEMBERSHIP_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/session.h"
#include "common/rpc/timeouts.h"

namespace holdfast {

// The place of a ps in a job that another ps coordinates: waits in the
// background for the coordinator, registers with it, keeps the session alive,
// and notices its end.
//
// Thread-compatible.
class Membership {
 public:
  struct Options {
    // Its deadline, patience, on_change, on_waiting and give_up are set here.
    Session::Options session;
    // How long the coordinator may take to appear.
    absl::Duration start_timeout = kDefaultTimeout;
    // How long it may be silent, or away, later, until session.job_patience
    // knows better: the ps registers with one that was restarted.
    absl::Duration recovery_timeout = kDefaultTimeout;
    // How long, once the job is DONE, the coordinator may be out of reach
    // before it counts as gone.
    absl::Duration silence_after_done = absl::Seconds(10);
  };

  // That the ps has no job any more, though nobody told its shard.
  struct End {
    // OK: the job was DONE, and the coordinator is gone. Otherwise why: ABORTED
    // with the job's reason when it has failed; UNAVAILABLE when the
    // coordinator did not appear, fell silent, or does not take this life of
    // the ps any more; other errors of Session::Open when it refused the ps.
    absl::Status status;
    // What the coordinator has said about the end of the job. Absent: nothing,
    // and the job may go on without this process.
    std::optional<proto::JobState> verdict;
  };

  // `on_end` is called at most once, from another thread.
  Membership(Options options, std::function<void(const End&)> on_end);
  // Does not leave: to the coordinator it is as if the process had died.
  ~Membership();

  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Ends the session. `error` says why the job cannot go on, and ends it;
  // empty: the ps steps down. Without a session it only stops to look for one.
  // Returns what the coordinator has said about the end of the job; absent:
  // nothing.
  std::optional<proto::JobState> Leave(const std::string& error,
                                       absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Coordinator;

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Join() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true when the coordinator is gone after DONE, false when stopped.
  bool AwaitSilenceAfterDone(Coordinator* coordinator)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnChange(const Session::News& news) ABSL_LOCKS_EXCLUDED(mutex_);
  void StopThread() ABSL_LOCKS_EXCLUDED(mutex_);
  bool stopping() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return stopping_;
  }

  const Options options_;
  const std::function<void(const End&)> on_end_;

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;

  // Set by the thread, and read by others once it has ended.
  std::unique_ptr<Session> session_;
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_MEMBERSHIP_H_
