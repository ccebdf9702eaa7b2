// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_WORKER_MAIN_H_
#define HOLDFAST_WORKER_WORKER_MAIN_H_

#include <cstdint>
#include <functional>

#include "common/job/ids.h"
#include "worker/input/dataset_registry.h"
#include "worker/model/registry.h"

namespace holdfast {

// The program's own models and data sources, which job files can name.
struct Registries {
  ModelRegistry models;
  DatasetRegistry datasets;
};

// What a program can add to the training loop.
struct WorkerHooks {
  // Called by the training thread before each step. In asynchronous jobs it is
  // called before each ticket, and `step` is the ticket's number. `seed` is the
  // job's.
  std::function<void(uint64_t seed, uint32_t replica, GlobalStep step)>
      before_step;
  // Called before each example is read for a batch, by the threads that make
  // batches.
  std::function<void()> before_example;
};

// The whole worker daemon: a program with its own models or data sources fills
// the registries and calls this from its main() (examples/custom_model/,
// examples/custom_data/).
//
//   1. Reads the flags, TF_CONFIG and the job file.
//   2. Reads the data and creates the model.
//   3. Connects to the cluster, which compares job and data with those of the
//      workers already there.
//   4. Trains (client/failure.h) and leaves.
//
// SIGTERM and SIGINT make the worker step down: another worker, or a restarted
// one, may take its place.
//
// Returns the exit code of the process (common/process/daemon.h): kExitDone;
// kExitFailed, with the reason in the log; kExitUsage, when the log says what
// is wrong with the flags or the job file; or kExitRestart, when the worker was
// told to stop, was fenced, or could not reach a ps or the coordinator
// (IsWorkersOwn in client/failure.h).
int WorkerMain(int argc, char** argv, const Registries& registries,
               const WorkerHooks& hooks = {});

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_WORKER_MAIN_H_
