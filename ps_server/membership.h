// SPDX-License-Identifier: Apache-2.0
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

// The membership of a ps in a job that another ps coordinates: waits in the
// background for the coordinator, registers with it, keeps the session alive,
// and notices its end.
//
// Thread-compatible.
class Membership {
 public:
  struct Options {
    // Membership itself sets deadline, patience, on_change, on_waiting and
    // give_up.
    Session::Options session;
    // How long the coordinator may take to appear.
    absl::Duration start_timeout = kDefaultTimeout;
    // How long the coordinator may be silent or away after it has appeared,
    // unless session.job_patience overrides it. The ps registers again with a
    // coordinator that was restarted.
    absl::Duration recovery_timeout = kDefaultTimeout;
    // How long the coordinator may be unreachable, once the job is DONE, before
    // it counts as gone.
    absl::Duration silence_after_done = absl::Seconds(10);
  };

  // Why the ps is no longer part of a job, if its shard was not told so.
  struct End {
    // OK if the job was DONE, and the coordinator is gone. Otherwise the cause:
    // ABORTED with the job's reason when the job has failed; UNAVAILABLE when
    // the coordinator did not appear, fell silent, or no longer accepts this
    // life of the ps; other errors of Session::Open when it refused the ps.
    absl::Status status;
    // What the coordinator has said about the end of the job. Absent if the
    // coordinator has said nothing; the job may then go on without this
    // process.
    std::optional<proto::JobState> verdict;
  };

  // `on_end` is called at most once, from another thread.
  Membership(Options options, std::function<void(const End&)> on_end);
  // Ends the membership without leaving the job: to the coordinator it looks as
  // if the process had died.
  ~Membership();

  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Ends the session. A nonempty `error` says why the job cannot go on, and
  // ends the job; with an empty `error` only the ps leaves, and another may
  // take its place. If there is no session yet, only stops trying to open one.
  // Returns what the coordinator has said about the end of the job; nullopt if
  // it has said nothing.
  std::optional<proto::JobState> Leave(const std::string& error,
                                       absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Coordinator;

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Join() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true once the coordinator is gone after DONE, and false if this
  // thread is told to stop.
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

  // Set by the thread; read by other threads once it has ended.
  std::unique_ptr<Session> session_;
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_MEMBERSHIP_H_
