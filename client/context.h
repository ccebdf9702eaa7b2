#ifndef HOLDFAST_CLIENT_CONTEXT_H_
#define HOLDFAST_CLIENT_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
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
  absl::Duration report_every = absl::Seconds(1);
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
  Context(const Timing& timing,
          std::function<void(const std::string&)> on_waiting)
      : timing(timing), on_waiting(std::move(on_waiting)) {}

  const Timing timing;
  // May be empty.
  const std::function<void(const std::string&)> on_waiting;

  mutable absl::Mutex mutex;

  // Takes note of what an answer or the session says about the job. Phases only
  // move forward; FAILED ends the context.
  void Note(const proto::JobState& state) ABSL_LOCKS_EXCLUDED(mutex);
  // Ends every wait with `why`. The first time counts.
  void End(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex);

  // OK until End.
  const absl::Status& ended() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return ended_;
  }
  proto::JobState state() const ABSL_LOCKS_EXCLUDED(mutex);

  // What the open step waits for, as last heard: "step 11 waits for
  // /job:worker/task:1". Empty when nothing is known.
  std::string step_waits_for ABSL_GUARDED_BY(mutex);

  // Calls that gRPC has not let go of.
  int64_t calls_out ABSL_GUARDED_BY(mutex) = 0;

 private:
  absl::Status ended_ ABSL_GUARDED_BY(mutex);
  proto::JobState state_ ABSL_GUARDED_BY(mutex);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CONTEXT_H_
