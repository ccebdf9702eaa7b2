// SPDX-License-Identifier: Apache-2.0

// ps_worker with OnesModel, and with --slow_step_ms_max.

#include "glog/logging.h"
#include "tests/faults/ones_model.h"
#include "tests/slow_worker/slow_steps.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  holdfast::Registries registries;
  CHECK(registries.models.Register("ones", holdfast::OnesModel::Create).ok());
  return holdfast::WorkerMain(argc, argv, registries, holdfast::SlowSteps());
}
