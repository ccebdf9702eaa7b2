#ifndef HOLDFAST_WORKER_WORKER_MAIN_H_
#define HOLDFAST_WORKER_WORKER_MAIN_H_

#include <cstdint>
#include <functional>

#include "common/job/ids.h"
#include "worker/input/dataset_registry.h"
#include "worker/model/registry.h"

namespace holdfast {

// What a program has of its own for job files to name.
struct Registries {
  ModelRegistry models;
  DatasetRegistry datasets;
};

// What a program may add to the training loop.
struct WorkerHooks {
  // Called by the training thread before each step; in asynchronous jobs before
  // each ticket, with its number. `seed` is the job's.
  std::function<void(uint64_t seed, uint32_t replica, GlobalStep step)>
      before_step;
  // Called before each example that is read for a batch, by the threads that
  // make batches.
  std::function<void()> before_example;
};

// The whole of a worker daemon: a program with models or data sources of its
// own fills the registries and calls this from its main()
// (examples/custom_model/, examples/custom_data/).
//
//   1. Reads flags, TF_CONFIG and job file.
//   2. Reads the data, makes the model.
//   3. Connects to the cluster, which compares job and data with those of the
//      workers already there.
//   4. Trains (client/failure.h) and leaves.
//
// SIGTERM and SIGINT make it step down: another, or itself started again, may
// take its place.
//
// Returns the exit code of the process (common/process/daemon.h): kExitDone;
// kExitFailed with the reason in the log; kExitUsage with what is wrong with
// flags or job file; or kExitRestart when it was told to stop, was shut out, or
// had ps or coordinator out of its reach (IsWorkersOwn in
// client/failure.h).
int WorkerMain(int argc, char** argv, const Registries& registries,
               const WorkerHooks& hooks = {});

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_WORKER_MAIN_H_
