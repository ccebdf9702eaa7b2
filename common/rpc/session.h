#ifndef HOLDFAST_COMMON_RPC_SESSION_H_
#define HOLDFAST_COMMON_RPC_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/task_id.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// A task's membership in a cluster: its incarnation, and the lease that a
// thread of its own keeps alive over a connection of its own.
//
// A session ends once, for one of these reasons, and is not renewed afterwards:
// the job has FAILED; the coordinator refuses the lease, because it had run
// out; the coordinator was silent for a whole lease; Close. That the job is
// DONE does not end it: the task may still have something to evaluate, and
// leaves by Close.
//
// Thread-safe.
class Session {
 public:
  struct Options {
    TaskId task;
    // Where ps task 0 listens, host:port.
    std::string coordinator;
    // Where the task itself listens, host:port. Of a ps only.
    std::string address;
    // Empty where the task has none (a ps).
    std::string job_digest;
    std::string data_digest;
    // What the task's ClusterSpec holds.
    uint32_t num_ps = 1;
    uint32_t num_workers = 1;
    // Of a ps: what its share of the job may take. 0: no limit.
    int64_t memory_limit_bytes = 0;

    // Until when Open tries.
    absl::Time deadline = absl::InfiniteFuture();
    // How long one attempt to register or leave may take. A longer one notices
    // later that a connection is dead.
    absl::Duration attempt_timeout = absl::Seconds(5);

    // Told once when the job is DONE, and once when the session has ended, but
    // not by Close. `status` is as of status(). Called from the session's
    // thread; must not call Close or destroy the session. May be empty.
    std::function<void(const proto::JobState& state,
                       const absl::Status& status)>
        on_change;
    // Told about once a second, by Open, after the first two seconds: what it
    // waits for. May be empty.
    std::function<void(const std::string& what)> on_waiting;
  };

  // Registers, then starts to renew the lease. Repeats with the same nonce what
  // was not answered.
  // Errors: UNAVAILABLE or DEADLINE_EXCEEDED, naming the coordinator, when it
  // did not answer until the deadline; otherwise the coordinator's own, at once
  // (see Coordinator.Register in proto/coordinator.proto).
  static absl::StatusOr<std::unique_ptr<Session>> Open(Options options);

  // Stops to renew, without a word to the coordinator.
  ~Session();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Who asks, for requests; in the newest generation heard of.
  proto::Sender sender() const ABSL_LOCKS_EXCLUDED(mutex_);
  // As last heard. FAILED, with the reason, when the session has ended.
  proto::JobState state() const ABSL_LOCKS_EXCLUDED(mutex_);
  // OK while the session lasts, and after DONE. Otherwise why it has ended:
  // ABORTED when the job has failed or the lease was refused, UNAVAILABLE when
  // the coordinator was silent.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the session in order; `error` says why where the job is not done, and
  // then ends the job. May be repeated: once the coordinator has answered, it
  // does nothing. Does not return before `on_change`, if it runs, has returned.
  // Errors: as Open, when the coordinator did not answer; status(), at once,
  // when it has been silent for a whole lease already.
  absl::Status Close(const std::string& error, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(closing_, mutex_);

 private:
  struct Rpc;  // the stub, and the call in progress

  Session(Options options, std::unique_ptr<Rpc> rpc);

  absl::Status Register();
  void RenewUntilStopped();
  // One renewal, repeated until it is answered or a whole lease has passed
  // since `heard`. The errors are those of status().
  absl::Status Renew(absl::Time heard);
  absl::Status Heard(const proto::RenewLeaseResponse& response);
  void End(const absl::Status& why);
  void StopRenewing();
  // False when the session was stopped in the meantime.
  bool SleepUntil(absl::Time when) ABSL_LOCKS_EXCLUDED(mutex_);
  // "/job:ps/task:0 at host:port".
  std::string CoordinatorName() const;
  // `status`, with that name before its message.
  absl::Status FromCoordinator(const absl::Status& status) const;

  const Options options_;
  const std::unique_ptr<Rpc> rpc_;
  absl::Duration lease_;

  // Held by Close for its whole length; taken before mutex_.
  absl::Mutex closing_;
  bool left_ ABSL_GUARDED_BY(closing_) = false;

  mutable absl::Mutex mutex_;
  proto::Sender sender_ ABSL_GUARDED_BY(mutex_);
  proto::JobState state_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_SESSION_H_
