// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_SLOW_WORKER_STEP_DELAY_H_
#define HOLDFAST_TESTS_SLOW_WORKER_STEP_DELAY_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/job/ids.h"

namespace holdfast {

// Returns how long `replica` sleeps before `step`: uniform on [0, max), and
// determined by seed, replica and step alone.
absl::Duration StepDelay(absl::Duration max, uint64_t seed, uint32_t replica,
                         GlobalStep step);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SLOW_WORKER_STEP_DELAY_H_
