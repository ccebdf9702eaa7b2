#include "tests/slow_worker/slow_steps.h"

#include "absl/flags/flag.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "tests/slow_worker/step_delay.h"

ABSL_FLAG(
    double, slow_step_ms_max, 0,
    "Sleep before each step (asynchronous jobs: ticket) for a random time "
    "below this many milliseconds. The time depends on seed, worker and "
    "step alone.");

namespace holdfast {

WorkerHooks SlowSteps() {
  WorkerHooks hooks;
  hooks.before_step = [](uint64_t seed, uint32_t replica, GlobalStep step) {
    const absl::Duration max =
        absl::Milliseconds(absl::GetFlag(FLAGS_slow_step_ms_max));
    if (max <= absl::ZeroDuration()) return;
    absl::SleepFor(StepDelay(max, seed, replica, step));
  };
  return hooks;
}

}  // namespace holdfast
