// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_CONTEXT_H_
#define HOLDFAST_CLIENT_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/timing.h"
#include "client/transport.h"
#include "common/job/task_id.h"
#include "common/rpc/session_news.h"
#include "proto/cluster.pb.h"

namespace holdfast::client {

// State shared by the handles of one client, and by the calls that outlive
// them: the news of the job, and the transport to the ps tasks.
//
// Thread-safe. `mutex` guards the state of every handle: there is little of it,
// and tensors are moved without the lock.
class Context {
 public:
  struct Options {
    Timing timing;
    // The caller.
    TaskId task;
    // The names of the ps in errors, indexed by ps: "/job:ps/task:1
    // (127.0.0.1:4001)".
    std::vector<std::string> ps_names;
    // See Cluster::Options::on_waiting. May be empty.
    std::function<void(const std::string&)> on_waiting;
    // Called without locks when a peer has refused a call for a reason that
    // only news of the job can explain. May be empty.
    std::function<void()> on_unexplained;
    // Called without locks when a shard has refused for good what the job
    // cannot go on without (Rpc::moves_job), with the error that the caller
    // gets next. May be empty.
    std::function<void(const absl::Status&)> on_refused;
  };

  // `transport` must outlive this object.
  Context(Options options, Transport* transport);

  const Timing timing;
  const std::vector<std::string> ps_names;
  const std::function<void(const std::string&)> on_waiting;
  const std::function<void()> on_unexplained;
  const std::function<void(const absl::Status&)> on_refused;
  Transport& transport;
  // The transport's mutex.
  absl::Mutex& mutex;

  uint32_t num_ps() const { return static_cast<uint32_t>(ps_names.size()); }

  // Takes news from the session. The session's end ends the context.
  void Hear(const SessionNews& news) ABSL_LOCKS_EXCLUDED(mutex);
  // Ends the context: from now on WhyOver returns `why`.
  void End(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex);
  // Notes what an answer says about the job; FAILED and STOPPED end the
  // context.
  // A client without a session learns of generations this way. `state` is null
  // if the answer does not contain the job's state.
  void Note(uint64_t generation, const proto::JobState* state,
            std::optional<uint64_t> durable_step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // The caller, with the newest incarnation and generation known.
  const proto::Sender& sender() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return sender_;
  }
  // Whether the job is in another generation than `sender`, or continues with
  // another life of the task.
  bool IsRolledBack(const proto::Sender& sender) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex);
  // IsOver returns whether calls of `sender` can no longer succeed. WhyOver
  // returns why: the reason for which the context has ended, or ABORTED if the
  // sender's generation or life is over; OK if calls can still succeed. A null
  // `sender` stands for calls that are made in the newest generation.
  bool IsOver(const proto::Sender* sender) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex);
  absl::Status WhyOver(const proto::Sender* sender) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex);

  const proto::JobState& state() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return state_;
  }
  uint64_t durable_step() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return durable_step_;
  }

  // What the open step waits for, as last heard: "step 11 waits for
  // /job:worker/task:1". Empty if unknown.
  std::string step_waits_for ABSL_GUARDED_BY(mutex);

 private:
  // Replaces state_, unless the job has already ended, which is final.
  void NoteState(const proto::JobState& state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Why the context has ended. OK until then.
  absl::Status ended_ ABSL_GUARDED_BY(mutex);
  proto::Sender sender_ ABSL_GUARDED_BY(mutex);
  proto::JobState state_ ABSL_GUARDED_BY(mutex);
  // The durable step of the newest generation.
  uint64_t durable_step_ ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CONTEXT_H_
