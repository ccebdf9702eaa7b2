// SPDX-License-Identifier: Apache-2.0
#include "tests/slow_worker/slow_steps.h"

#include "absl/flags/flag.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/job/ids.h"
#include "tests/slow_worker/step_delay.h"

ABSL_FLAG(
    double, slow_step_ms_max, 0,
    "Sleep before each step (asynchronous jobs: ticket) for a random time "
    "below this many milliseconds. The time depends on seed, worker and "
    "step alone.");

ABSL_FLAG(double, slow_step_factor, 1,
          "Factor of --slow_step_ms_max from --slow_step_from on.");
ABSL_FLAG(uint64_t, slow_step_from, 0,
          "First step (asynchronous jobs: ticket) that --slow_step_factor "
          "applies to.");
ABSL_FLAG(double, slow_example_ms, 0,
          "Sleep for this many milliseconds before each example is read.");

namespace holdfast {

WorkerHooks SlowSteps() {
  WorkerHooks hooks;
  hooks.before_step = [](uint64_t seed, uint32_t replica, GlobalStep step) {
    const bool slower = step.value() >= absl::GetFlag(FLAGS_slow_step_from);
    absl::Duration max =
        absl::Milliseconds(absl::GetFlag(FLAGS_slow_step_ms_max));
    if (slower) max *= absl::GetFlag(FLAGS_slow_step_factor);
    if (max <= absl::ZeroDuration()) return;
    absl::SleepFor(StepDelay(max, seed, replica, step));
  };
  hooks.before_example = [] {
    const absl::Duration time =
        absl::Milliseconds(absl::GetFlag(FLAGS_slow_example_ms));
    if (time > absl::ZeroDuration()) absl::SleepFor(time);
  };
  return hooks;
}

}  // namespace holdfast
