#ifndef HOLDFAST_COMMON_CLOCK_H_
#define HOLDFAST_COMMON_CLOCK_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace holdfast {

// Where the time is read, so that a test may hold it. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class SystemClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

// Counts from some moment of the past, and neither jumps nor goes back when the
// machine's date is set: for leases and timeouts.
class SteadyClock : public Clock {
 public:
  absl::Time Now() const override {
    return absl::UnixEpoch() +
           absl::FromChrono(
               std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CLOCK_H_
