// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_BASE_CLOCK_H_
#define HOLDFAST_COMMON_BASE_CLOCK_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace holdfast {

// The steady clock: the time since some moment in the past, the same for all
// processes of a machine, as if that moment had been the Unix epoch. It neither
// jumps nor goes back when the machine's date is set, and stops while the
// machine is suspended.
//
// Every deadline, lease, timeout and measured duration uses this clock. Code
// that waits for a deadline passes the remaining time to a function that takes
// a duration (absl::Mutex::AwaitWithTimeout(condition, deadline -
// SteadyNow())), or converts the deadline for gRPC (common/rpc/deadline.h).
// Abseil's functions that take a deadline (AwaitWithDeadline) follow the date
// and are not used; tests/clock_use_test.sh checks that. steady_waits.cc makes
// Abseil's timed waits themselves follow the steady clock.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// The date and time of day, which may be set at any time. Used for names, for
// output that people read, for files and certificates; no wait depends on it.
inline absl::Time DateNow() { return absl::Now(); }

// The source of the time, so that a test can control it. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class SteadyClock : public Clock {
 public:
  absl::Time Now() const override { return SteadyNow(); }
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_CLOCK_H_
