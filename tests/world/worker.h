// SPDX-License-Identifier: Apache-2.0

// Workers that follow the protocol by script, and workers that violate it
// (Misdeed).
#ifndef HOLDFAST_TESTS_WORLD_WORKER_H_
#define HOLDFAST_TESTS_WORLD_WORKER_H_

#include <cstdint>
#include <memory>

#include "tests/world/world.h"

namespace holdfast::sim {

// A SynchronousWorker or an AsynchronousWorker, as the job of the world
// requires.
std::unique_ptr<WorkerProgram> MakeScriptedWorker(World* world, Process process,
                                                  uint32_t index,
                                                  uint64_t nonce);

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_WORKER_H_
