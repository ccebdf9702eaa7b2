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

// What the handles of one client, and the calls that outlive them, share: the
// news of the job, and the way to the ps tasks.
//
// Thread-safe. `mutex` guards the state of every handle: there is little of it,
// and values are moved without it.
class Context {
 public:
  struct Options {
    Timing timing;
    // Who asks.
    TaskId task;
    // By ps, for errors: "/job:ps/task:1 (127.0.0.1:4001)".
    std::vector<std::string> ps_names;
    // As Cluster::Options.on_waiting. May be empty.
    std::function<void(const std::string&)> on_waiting;
    // Called without locks when a peer has refused a call for a reason that
    // only news of the job can explain. May be empty.
    std::function<void()> on_unexplained;
  };

  // `transport` must outlive this object.
  Context(Options options, Transport* transport);

  const Timing timing;
  const std::vector<std::string> ps_names;
  const std::function<void(const std::string&)> on_waiting;
  const std::function<void()> on_unexplained;
  Transport& transport;
  // That of the transport.
  absl::Mutex& mutex;

  uint32_t num_ps() const { return static_cast<uint32_t>(ps_names.size()); }

  // Takes over what the session has heard. Its end ends the context.
  void Hear(const SessionNews& news) ABSL_LOCKS_EXCLUDED(mutex);
  // Ends the context for a reason of the caller's own.
  void End(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex);
  // Takes note of what an answer says about the job; FAILED and STOPPED end the
  // context.
  // Who has no session learns of generations from here. `state`: null where the
  // answer has none.
  void Note(uint64_t generation, const proto::JobState* state,
            std::optional<uint64_t> durable_step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Who asks, in the newest life and generation heard of.
  const proto::Sender& sender() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return sender_;
  }
  // Whether the job has begun another generation than that of `sender`, or goes
  // on with another life of the task.
  bool IsRolledBack(const proto::Sender& sender) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex);
  // Whether calls of `sender` cannot succeed any more, and why; null: calls
  // of the newest. The reason is that of the end of the context, or ABORTED.
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
  // /job:worker/task:1". Empty when nothing is known.
  std::string step_waits_for ABSL_GUARDED_BY(mutex);

 private:
  // An end is final.
  void NoteState(const proto::JobState& state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Why everything has ended. OK until then.
  absl::Status ended_ ABSL_GUARDED_BY(mutex);
  proto::Sender sender_ ABSL_GUARDED_BY(mutex);
  proto::JobState state_ ABSL_GUARDED_BY(mutex);
  // In the newest generation.
  uint64_t durable_step_ ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CONTEXT_H_
