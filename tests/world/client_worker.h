// SPDX-License-Identifier: Apache-2.0

// A worker that combines the production client (client/client.h) with a
// simulated user of it.
#ifndef HOLDFAST_TESTS_WORLD_CLIENT_WORKER_H_
#define HOLDFAST_TESTS_WORLD_CLIENT_WORKER_H_

#include <cstdint>
#include <memory>

#include "tests/world/world.h"

namespace holdfast::sim {

// Fills one seat in jobs by ticket and all of its seats in jobs by step; in
// asynchronous jobs, it has as many pushes under way as the job says. The user
// computes gradients and makes the same calls as worker/trainer. What is sent
// when, and what is sent again, is decided by the client, as are sequences,
// tickets and pulls of one version (docs/protocol/recovery.md, R7). Only the
// session, which is not part of the client, belongs to the world.
std::unique_ptr<WorkerProgram> MakeClientWorker(World* world, Process process,
                                                uint32_t index, uint64_t nonce);

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_CLIENT_WORKER_H_
