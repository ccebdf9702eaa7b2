// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_TIMING_H_
#define HOLDFAST_CLIENT_TIMING_H_

#include "absl/time/time.h"

namespace holdfast::client {

// A client's timeouts.
struct Timing {
  // The time limit for one attempt of a call, in addition to the time it is
  // parked. With a longer limit, an unresponsive peer is detected later.
  absl::Duration attempt = absl::Seconds(10);
  // The time limit for one attempt of a call with tensors. If it were shorter
  // than the network needs for everything in flight to a ps, parts on their way
  // would be resent forever. The default suffices for 8 parts of 4 MiB at 560
  // KB/s.
  absl::Duration tensors_attempt = absl::Seconds(60);
  // How long servers are asked to park calls. With a longer time, there are
  // fewer calls while nothing happens.
  absl::Duration park = absl::Seconds(5);
  // How long a spent ticket waits to be reported by the next request for a
  // ticket. With a longer time, the ticket is booked later; with a shorter
  // time, a separate call is needed more often to report it.
  absl::Duration tell_spent = absl::Milliseconds(10);
  // When on_waiting is first called for a wait, and how often after that.
  absl::Duration first_report = absl::Seconds(2);
  absl::Duration report_every = absl::Seconds(10);
  // How long a Cluster that is destroyed without Leave tries to leave.
  absl::Duration last_words = absl::Seconds(1);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TIMING_H_
