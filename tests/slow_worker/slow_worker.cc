// SPDX-License-Identifier: Apache-2.0

// ps_worker with the flags of slow_steps.h.

#include "tests/slow_worker/slow_steps.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  return holdfast::WorkerMain(argc, argv, holdfast::Registries(),
                              holdfast::SlowSteps());
}
