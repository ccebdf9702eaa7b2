#ifndef HOLDFAST_TESTS_SLOW_WORKER_SLOW_STEPS_H_
#define HOLDFAST_TESTS_SLOW_WORKER_SLOW_STEPS_H_

#include "worker/worker_main.h"

namespace holdfast {

// A worker that sleeps before each step, for at most --slow_step_ms_max. A
// program that links this has that flag.
WorkerHooks SlowSteps();

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SLOW_WORKER_SLOW_STEPS_H_
