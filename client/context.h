#ifndef HOLDFAST_CLIENT_CONTEXT_H_
#define HOLDFAST_CLIENT_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/session.h"
#include "common/task_id.h"
#include "proto/cluster.pb.h"

namespace holdfast::client {

// How patient a client is.
struct Timing {
  // For the answer to one attempt of a call, beyond the time it is parked. A
  // longer one notices later that a peer is mute.
  absl::Duration attempt = absl::Seconds(10);
  // The same for a call with tensors. One that is shorter than the network
  // needs for all that is in flight to a ps would send again, for ever, what is
  // on its way: 8 parts of 4 MiB in 60 s are 560 KB/s.
  absl::Duration tensors_attempt = absl::Seconds(60);
  // How long servers are asked to park calls. A longer one means fewer calls
  // while nothing happens.
  absl::Duration park = absl::Seconds(5);
  // How long a spent ticket waits for the next request for one to tell of it. A
  // longer one books it later; a shorter one tells of it in a call of its own.
  absl::Duration tell_spent = absl::Milliseconds(10);
  // When a wait is first told to on_waiting, and how often after that.
  absl::Duration first_report = absl::Seconds(2);
  absl::Duration report_every = absl::Seconds(10);
  // How long a Cluster that is destroyed without Leave tries to leave.
  absl::Duration last_words = absl::Seconds(1);
};

// What the handles of one Cluster, and the calls that outlive them, share: the
// one lock of the client, and the news of the job.
//
// Thread-safe. `mutex` guards the state of every handle: there is little of it,
// and values are moved without it.
class Context {
 public:
  // `task`: of the client. `on_unexplained` is called, by a thread of gRPC and
  // without locks, when a peer has refused a call for a reason that only news
  // of the job can explain.
  Context(const Timing& timing,
          std::function<void(const std::string&)> on_waiting,
          const TaskId& task, std::function<void()> on_unexplained);

  const Timing timing;
  // May be empty.
  const std::function<void(const std::string&)> on_waiting;
  const std::function<void()> on_unexplained;

  mutable absl::Mutex mutex;

  // Takes over what the session has heard. Its end ends the context.
  void Hear(const Session::News& news) ABSL_LOCKS_EXCLUDED(mutex);
  // Takes note of what an answer says about the job; FAILED ends the context.
  // Who has no session learns of generations from here.
  void Note(uint64_t generation, const proto::JobState& state,
            std::optional<uint64_t> durable_step) ABSL_LOCKS_EXCLUDED(mutex);

  // Who asks, in the newest life and generation heard of.
  const proto::Sender& sender() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return sender_;
  }
  // Whether the job has begun another generation than that of `sender`, or goes
  // on with another life of the task.
  bool IsRolledBack(const proto::Sender& sender) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex);
  // Whether calls of `sender` cannot succeed any more, and why; nullopt: calls
  // of the newest. The reason is that of the end of the context, or ABORTED.
  bool IsOver(const std::optional<proto::Sender>& sender) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex);
  absl::Status WhyOver(const std::optional<proto::Sender>& sender) const
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

  // Calls that gRPC has not let go of.
  int64_t calls_out ABSL_GUARDED_BY(mutex) = 0;

  // Of all calls, the session's too.
  CallQueue queue;

  // Who polls it. A thread that waits for an answer does it best: it need not
  // be woken then. Wire has one for times when nobody waits. Neither wakes up
  // before there is something to do, however long that takes.
  struct Polling {
    // Whether the thread that polls waits for something that has come about by
    // another thread's hand. What its own answers bring about it sees by
    // itself, and so does not count where this is evaluated by that thread: as
    // part of an absl::Condition, whenever it unlocks the mutex.
    bool IsOverForPoller() const {
      return over != nullptr && std::this_thread::get_id() != poller &&
             (*over)();
    }

    // A thread does; one does at a time.
    bool busy = false;
    // It is to be woken where somebody waits.
    bool may_be_woken = false;
    // If it waits itself: whether it has what it waits for, and which it is.
    const absl::FunctionRef<bool()>* over = nullptr;
    std::thread::id poller;
    // How often a thread that waits has done it.
    uint64_t turns = 0;
    // Threads that wait.
    int waiters = 0;
    // Something is on its way for which nobody waits yet.
    bool wanted = false;
  };
  Polling polling ABSL_GUARDED_BY(mutex);

 private:
  // DONE and FAILED are final.
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
