#ifndef HOLDFAST_COMMON_BASE_CLOCK_H_
#define HOLDFAST_COMMON_BASE_CLOCK_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace holdfast {

// The steady clock: the time since some moment in the past, the same for all
// processes of a machine, as if that moment had been the Unix epoch. It neither
// jumps nor goes back when the machine's date is set, and stands still while
// the machine is suspended.
//
// Every deadline, lease, timeout and measured duration is by this clock. Waits
// for a deadline pass what is left of it to a function that takes a duration
// (absl::Mutex::AwaitWithTimeout(condition, deadline - SteadyNow())), or
// convert it for gRPC (common/rpc/deadline.h). Abseil's functions that take a
// deadline (AwaitWithDeadline) are by the date and are not used;
// tests/clock_use_test.sh looks for them. Abseil's timed waits themselves are
// made steady by steady_waits.cc.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// The date, which anybody may set at any time: for names, for what people read,
// for files and certificates. Nothing waits by it.
inline absl::Time DateNow() { return absl::Now(); }

// Where the time is read, so that a test may hold it. Thread-safe.
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
