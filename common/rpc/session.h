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
// incarnation, and the lease that a thread of its own keeps alive over a
// connection of its own. By the same way the task hears at once of new
// generations, and of what becomes of the job.
//
// A coordinator that was restarted is registered with again. A session ends
// once, for one of these reasons, and is not renewed afterwards: the job has
// FAILED; the coordinator has shut the task out, or does not take it back; it
// was silent for too long; Close. That the job is DONE does not end it: the
// task may still have something to evaluate, and leaves by Close.
//
// Thread-safe.
class Session {
 public:
  using News = SessionNews;

  struct Options {
    TaskId task;
    // For its calls. Others must poll it, from before Open until the session is
    // destroyed.
    CallQueue* queue = nullptr;
    // Where ps task 0 listens, host:port.
    std::string coordinator;
    // For the connection with it.
    Credentials credentials;
    // Where the task itself listens, host:port. Of a ps only.
    std::string address;
    // Of this life of the task. 0: one is made here.
    uint64_t nonce = 0;
    // Empty where the task has none (a ps).
    std::string job_digest;
    std::string data_digest;
    // What a worker is about to declare: compared with what was declared, where
    // the worker is refused, so that the error names the first difference.
    std::optional<proto::Declaration> declaration;
    // What the task's ClusterSpec holds.
    uint32_t num_ps = 1;
    uint32_t num_workers = 1;
    // Of a ps: what its share of the job may take. 0: no limit.
    int64_t memory_limit_bytes = 0;

    // Until when Open tries.
    absl::Time deadline = absl::InfiniteFuture();
    // How long one attempt of Open or Close may take. A longer one notices
    // later that a connection is dead.
    absl::Duration attempt_timeout = absl::Seconds(5);
    // How long the coordinator may be silent before the session ends. A longer
    // one leaves it more time to come back. 0: a lease.
    absl::Duration patience = kDefaultTimeout;
    // Asked before each renewal: the job's own patience, which goes before that
    // above once the task knows it. May be empty.
    std::function<std::optional<absl::Duration>()> job_patience;

    // Asked before each renewal what the task has to tell about itself. Must
    // not block: the lease runs meanwhile. May be empty.
    std::function<TaskReport()> report;
    // Records on demand, for traces of the whole cluster. Must outlive the
    // session. Null: the task has no part in them.
    Tracer* tracer = nullptr;
    // Told of each change in what was heard: by Open of the registration, later
    // by the session's thread; but not of Close. Must not call Close or destroy
    // the session. May be empty.
    std::function<void(const News& news)> on_change;
    // Told what is waited for, and why a connection fails (diagnosis.h), after
    // two seconds and each ten from then on: by Open, and by the session's
    // thread while the coordinator is silent. May be empty.
    std::function<void(const std::string& what)> on_waiting;
    // Asked about once a second, by Open: whether to give up, with CANCELLED.
    // May be empty.
    std::function<bool()> give_up;
  };

  // Registers, then starts to renew the lease. Repeats with the same nonce what
  // was not answered, and asks again while the coordinator cannot admit the
  // task yet.
  // Errors: UNAVAILABLE, naming the coordinator and the cause, when it did not
  // answer, or admit the task, until the deadline; INVALID_ARGUMENT when who
  // answers there never will be the coordinator (Diagnosis::kMistake);
  // otherwise its own, at once (see Coordinator.Register in
  // proto/coordinator.proto), but for ALREADY_EXISTS: that comes once the place
  // was waited for as long as a lease.
  static absl::StatusOr<std::unique_ptr<Session>> Open(Options options);

  // Stops to renew, without a word to the coordinator.
  ~Session();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  News news() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Parts of it.
  proto::Sender sender() const { return news().sender; }
  proto::JobState state() const { return news().state; }
  absl::Status status() const { return news().status; }

  // Ends the session in order. `error` says why the job cannot go on, and ends
  // it; empty: the job is done, or the task steps down, and another may take
  // its place. May be repeated: once the coordinator has answered, it does
  // nothing. Does not return before `on_change`, if it runs, has returned.
  // Errors: as Open, when the coordinator did not answer; status(), at once,
  // when the session has ended because it was silent.
  absl::Status Close(const std::string& error, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(closing_, mutex_);

 private:
  struct Rpc;  // the stub, and the calls in progress

  Session(Options options, std::unique_ptr<Rpc> rpc);

  // Until options_.deadline.
  absl::Status RegisterFirst();
  void RenewUntilStopped();
  // One attempt each. Errors: those of the call.
  // Whether the task is admitted, and heard of it; otherwise `*waiting_for`
  // tells what the coordinator waits for, and it is to be asked again.
  absl::StatusOr<bool> Register(absl::Time deadline, std::string* waiting_for);
  // `*trace_changes`: whether the answer tells anything new of a trace.
  absl::Status Renew(absl::Duration wait, absl::Time deadline,
                     bool* trace_changes);
  // Of a task that was refused with `why`: how what it would declare differs
  // from what was declared, as a part of a sentence. Empty where that is not
  // known.
  std::string DescribeDifference(const absl::Status& why);
  // What Open returns when who answers at the coordinator's address has refused
  // the task with `refusal`, and may not be the coordinator at all.
  absl::Status WhyRefused(const absl::Status& refusal);
  absl::Duration Patience() const;
  // Takes over what was heard, and tells of it if it is new.
  void Hear(absl::FunctionRef<void(News* news)> change)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status& why);
  void StopRenewing();
  // False when the session was stopped in the meantime.
  bool Sleep(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);
  // "/job:ps/task:0 at host:port".
  std::string CoordinatorName() const;
  // `status`, with that name before its message.
  absl::Status FromCoordinator(const absl::Status& status) const;
  // Before calls are ended: lets the spans of a trace that is over go out.
  void SendTrace(absl::Duration patience);
  // Tells on_waiting of `text`, when that is due by `*report`.
  void ReportWait(absl::string_view text, absl::Time* report) const;

  const Options options_;
  const SteadyClock clock_;
  const std::unique_ptr<Rpc> rpc_;
  // Set by each registration; the session's thread's own after the first.
  absl::Duration lease_;
  // When the coordinator was first asked for a place that it did not give yet;
  // the session's thread's own after Open.
  std::optional<absl::Time> waits_since_;

  // Held by Close for its whole length; taken before mutex_.
  absl::Mutex closing_;
  bool left_ ABSL_GUARDED_BY(closing_) = false;

  mutable absl::Mutex mutex_;
  News news_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Null: without a tracer.
  std::unique_ptr<TraceReporter> trace_;
  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_SESSION_H_
