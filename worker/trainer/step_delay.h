#ifndef HOLDFAST_WORKER_TRAINER_STEP_DELAY_H_
#define HOLDFAST_WORKER_TRAINER_STEP_DELAY_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/ids.h"

namespace holdfast {

// How long replica `replica` dawdles before `step` where a test has workers
// slowed at random: uniform on [0, max), from seed, replica and step alone.
absl::Duration StepDelay(absl::Duration max, uint64_t seed, uint32_t replica,
                         GlobalStep step);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_STEP_DELAY_H_
