// SPDX-License-Identifier: Apache-2.0
#include "tests/world/worker.h"

#include "tests/world/asynchronous_worker.h"
#include "tests/world/synchronous_worker.h"

namespace holdfast::sim {

std::unique_ptr<WorkerProgram> MakeScriptedWorker(World* world, Process process,
                                                  uint32_t index,
                                                  uint64_t nonce) {
  if (world->job().asynchronous()) {
    return std::make_unique<AsynchronousWorker>(world, process, index, nonce);
  }
  return std::make_unique<SynchronousWorker>(world, process, index, nonce);
}

}  // namespace holdfast::sim
