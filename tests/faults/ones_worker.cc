// ps_worker with OnesModel, and with --slow_step_ms_max.

#include "glog/logging.h"
#include "tests/faults/ones_model.h"
#include "tests/slow_worker/slow_steps.h"
#include "worker/model/registry.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  holdfast::ModelRegistry registry;
  CHECK(registry.Register("ones", holdfast::OnesModel::Create).ok());
  return holdfast::WorkerMain(argc, argv, registry, holdfast::SlowSteps());
}
