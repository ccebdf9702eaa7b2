#ifndef HOLDFAST_CLIENT_TIMING_H_
#define HOLDFAST_CLIENT_TIMING_H_

#include "absl/time/time.h"

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

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TIMING_H_
