// A scheduler that is random by a seed.
#ifndef HOLDFAST_TESTS_SIMULATION_SCHEDULER_H_
#define HOLDFAST_TESTS_SIMULATION_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"

namespace holdfast {

// Events in the order of their time; of the clock too.
class Scheduler : public Clock {
 public:
  explicit Scheduler(uint64_t seed) : random_(seed) {}

  absl::Time Now() const override { return now_; }
  uint64_t Random(uint64_t below) { return random_() % below; }
  bool Happens(int of_1000) {
    return Random(1000) < static_cast<uint64_t>(of_1000);
  }
  // Below `longest`.
  absl::Duration RandomDuration(absl::Duration longest) {
    return absl::Microseconds(Random(1 + absl::ToInt64Microseconds(longest)));
  }

  void After(absl::Duration delay, std::function<void()> event);
  // After a delay that is mostly short and sometimes long enough to be
  // overtaken by a whole step.
  void Soon(std::function<void()> event);
  // False when there is nothing to run.
  bool RunOne();
  // Forgets what was to come.
  void Clear() { events_.clear(); }

 private:
  struct Event {
    absl::Time at;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const;
  };
  std::mt19937_64 random_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t order_ = 0;
  // A heap, the next one on top.
  std::vector<Event> events_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_SCHEDULER_H_
