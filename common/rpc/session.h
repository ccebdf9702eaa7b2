// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_SESSION_H_
#define HOLDFAST_COMMON_RPC_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/task_id.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/credentials.h"
#include "common/rpc/session_news.h"
#include "common/rpc/task_report.h"
#include "common/rpc/timeouts.h"
#include "common/rpc/trace_reporter.h"
#include "common/trace/trace.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// A task's membership in a cluster (docs/protocol/recovery.md, L1 and L2): its
// incarnation, and the lease, which a dedicated thread renews over a dedicated
// connection. Over the same connection the task hears at once of new
// generations and of changes in the job's state.
//
// The session registers again with a restarted coordinator. The session ends
// when the job has FAILED; when the coordinator has fenced the task, or does
// not take it back; when the coordinator was silent for too long; or when Close
// is called. It is not renewed afterwards. A job that is DONE does not end the
// session: the task may still have something to evaluate, and leaves with
// Close.
//
// Thread-safe.
class Session {
 public:
  using News = SessionNews;

  struct Options {
    TaskId task;
    // The queue for the session's calls. Other threads must poll it, from
    // before Open until the session is destroyed.
    CallQueue* queue = nullptr;
    // Address of ps task 0, host:port.
    std::string coordinator;
    // The credentials for the connection to the coordinator.
    Credentials credentials;
    // The task's own address, host:port. Set only by ps tasks.
    std::string address;
    // Identifies this life of the task. If it is 0, Open generates a nonce.
    uint64_t nonce = 0;
    // Digests of the task's job file and of its data. Empty if the task has
    // none, as for a ps.
    std::string job_digest;
    std::string data_digest;
    // The declaration that a worker is about to make. If the worker is refused,
    // this declaration is compared with the job's, so that the error names the
    // first difference.
    std::optional<proto::Declaration> declaration;
    // The numbers of tasks in the task's ClusterSpec.
    uint32_t num_ps = 1;
    uint32_t num_workers = 1;
    // Memory limit for a ps's share of the job, in bytes; 0 means unlimited.
    int64_t memory_limit_bytes = 0;

    // When Open gives up.
    absl::Time deadline = absl::InfiniteFuture();
    // How long one attempt of Open or Close may take. With a longer timeout, a
    // dead connection is detected later.
    absl::Duration attempt_timeout = absl::Seconds(5);
    // How long the coordinator may be silent before the session ends. With a
    // longer time, the coordinator may come back later. 0 means the duration of
    // a lease.
    absl::Duration patience = kDefaultTimeout;
    // Called before each renewal: returns the job's own patience, which
    // overrides `patience` once the task knows it. May be empty.
    std::function<std::optional<absl::Duration>()> job_patience;

    // Called before each renewal: returns what the task reports about itself.
    // Must not block, because the lease is running. May be empty.
    std::function<TaskReport()> report;
    // Records the task's part of traces of the whole cluster. Must outlive the
    // session. Null if the task takes no part in them.
    Tracer* tracer = nullptr;
    // Called on each change of the news: by Open after the registration, later
    // by the session's thread, but not by Close. Must not call Close or destroy
    // the session. May be empty.
    std::function<void(const News& news)> on_change;
    // Called with what the session waits for, and why a connection fails
    // (diagnosis.h), after two seconds of waiting and then every ten: by Open,
    // and by the session's thread while the coordinator is silent. May be
    // empty.
    std::function<void(const std::string& what)> on_waiting;
    // Called by Open about once a second; returns whether to give up, with
    // CANCELLED. May be empty.
    std::function<bool()> give_up;
  };

  // Registers, then starts to renew the lease. Repeats unanswered calls with
  // the same nonce, and registers again for as long as the coordinator cannot
  // admit the task yet.
  // Errors: UNAVAILABLE, with the coordinator and the cause, when it did not
  // answer, or did not admit the task, by the deadline; INVALID_ARGUMENT when
  // the process that answers at `coordinator` will never be the coordinator
  // (Diagnosis::kMistake); otherwise the coordinator's error, at once (see
  // Coordinator.Register in proto/coordinator.proto), except ALREADY_EXISTS,
  // which comes only after the task has waited for its place for the duration
  // of a lease.
  static absl::StatusOr<std::unique_ptr<Session>> Open(Options options);

  // Stops renewing, without telling the coordinator.
  ~Session();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  News news() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Parts of news().
  proto::Sender sender() const { return news().sender; }
  proto::JobState state() const { return news().state; }
  absl::Status status() const { return news().status; }

  // Leaves the cluster in an orderly way. A non-empty `error` says why the job
  // cannot go on, and fails the job; empty means that the job is done, or that
  // the task steps down and another may take its place. May be called
  // repeatedly: once the coordinator has answered, Close does nothing. Close
  // returns only after a running `on_change` has returned.
  // Errors: those of Open when the coordinator did not answer; status(), at
  // once, when the session has ended because the coordinator was silent.
  absl::Status Close(const std::string& error, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(closing_, mutex_);
  // The same for a worker that may leave before the job is done, without an
  // error and without having been told to: users are told so. `program_ended`:
  // whether its program has ended.
  absl::Status CloseEarly(bool program_ended, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(closing_, mutex_);

 private:
  struct Rpc;  // the stub, and the calls in progress

  Session(Options options, std::unique_ptr<Rpc> rpc);

  // Tries to register until options_.deadline.
  absl::Status RegisterFirst();
  void RenewUntilStopped();
  // Register and Renew make one attempt each. Errors: those of the call.
  // Register returns true if the task was admitted; otherwise `*waiting_for`
  // says what the coordinator waits for, and the caller must call it again.
  absl::StatusOr<bool> Register(absl::Time deadline, std::string* waiting_for);
  // Sets `*trace_changes` to whether the answer has anything new about a trace.
  absl::Status Renew(absl::Duration wait, absl::Time deadline,
                     bool* trace_changes);
  // Says how the declaration of this task, which was refused with `why`,
  // differs from the job's, as an addition to the error. Empty if the
  // difference is not known.
  std::string DescribeDifference(const absl::Status& why);
  // What Open returns when the process at the coordinator's address, which may
  // not be the coordinator at all, has refused the task with `refusal`.
  absl::Status WhyRefused(const absl::Status& refusal);
  absl::Duration Patience() const;
  // Applies `change` to the news, and calls on_change if they differ.
  void Hear(absl::FunctionRef<void(News* news)> change)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status& why);
  // `request` says why the task leaves; its sender is filled in.
  absl::Status Leave(proto::LeaveRequest request, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(closing_, mutex_);
  void StopRenewing();
  // Returns false if the session was stopped in the meantime.
  bool Sleep(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);
  // "/job:ps/task:0 at host:port".
  std::string CoordinatorName() const;
  // `status`, with CoordinatorName() before its message.
  absl::Status FromCoordinator(const absl::Status& status) const;
  // Waits until the spans of a finished trace are sent. Must be called before
  // the calls in progress are ended.
  void SendTrace(absl::Duration patience);
  // Calls on_waiting with `text` if the time `*report` has come, and then sets
  // `*report` to the time of the next report.
  void ReportWait(absl::string_view text, absl::Time* report) const;

  const Options options_;
  const SteadyClock clock_;
  const std::unique_ptr<Rpc> rpc_;
  // Set by each registration; owned by the session's thread after the first.
  absl::Duration lease_;
  // When the task first asked for a place that it has not been given yet; owned
  // by the session's thread after Open.
  std::optional<absl::Time> waits_since_;

  // Held by Close throughout; acquired before mutex_.
  absl::Mutex closing_;
  bool left_ ABSL_GUARDED_BY(closing_) = false;

  mutable absl::Mutex mutex_;
  News news_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Null without a tracer.
  std::unique_ptr<TraceReporter> trace_;
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_SESSION_H_
