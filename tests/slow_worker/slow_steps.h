// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_SLOW_WORKER_SLOW_STEPS_H_
#define HOLDFAST_TESTS_SLOW_WORKER_SLOW_STEPS_H_

#include "worker/worker_main.h"

namespace holdfast {

// Hooks for a worker that sleeps before each step, for at most
// --slow_step_ms_max, and --slow_step_factor times as long from
// --slow_step_from on; and for --slow_example_ms before it reads an example. A
// program that links this library has these flags.
WorkerHooks SlowSteps();

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SLOW_WORKER_SLOW_STEPS_H_
