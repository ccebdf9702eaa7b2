#ifndef HOLDFAST_COMMON_CLOCK_H_
#define HOLDFAST_COMMON_CLOCK_H_

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

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CLOCK_H_
