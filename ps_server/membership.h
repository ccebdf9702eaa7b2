#ifndef HOLDFAST_PS_SERVER_MEMBERSHIP_H_
#define HOLDFAST_PS_SERVER_MEMBERSHIP_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/session.h"

namespace holdfast {

// The place of a ps in a job that another ps coordinates: waits in the
// background for the coordinator, registers with it, keeps the session alive,
// and notices its end.
//
// Thread-compatible.
class Membership {
 public:
  struct Options {
    // Its deadline, patience and callbacks are set here.
    Session::Options session;
    // How long the coordinator may take to appear.
    absl::Duration start_timeout = absl::Seconds(300);
    // How long it may be silent, or away, later: the ps registers with one that
    // was restarted.
    absl::Duration recovery_timeout = absl::Seconds(300);
    // How long, once the job is DONE, the coordinator may be out of reach
    // before it counts as gone.
    absl::Duration silence_after_done = absl::Seconds(10);
  };

  // `on_end` is called at most once, from another thread: when the ps has no
  // job any more, though nobody told its shard. OK: the job was DONE, and the
  // coordinator is gone. Otherwise why: the coordinator did not appear, refused
  // the ps, fell silent, or said that the job has failed.
  Membership(Options options, std::function<void(const absl::Status&)> on_end);
  // Does not leave: to the coordinator it is as if the process had died.
  ~Membership();

  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Ends the session. `error` says why the job cannot go on, and ends it;
  // empty: the ps steps down. Without a session it only stops to look for one.
  void Leave(const std::string& error, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Coordinator;

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Join(Coordinator* coordinator) ABSL_LOCKS_EXCLUDED(mutex_);
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
  const std::function<void(const absl::Status&)> on_end_;

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;

  // Set by the thread, and read by others once it has ended.
  std::unique_ptr<Session> session_;
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_MEMBERSHIP_H_
