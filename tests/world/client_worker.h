// A worker that is the production client (client/client.h) and a user of it.
#ifndef HOLDFAST_TESTS_WORLD_CLIENT_WORKER_H_
#define HOLDFAST_TESTS_WORLD_CLIENT_WORKER_H_

#include <cstdint>
#include <memory>

#include "tests/world/world.h"

namespace holdfast::sim {

// Of one seat by ticket, of all its seats by step; in asynchronous jobs, with
// as many pushes under way as the job says. The user computes gradients and
// asks as worker/trainer does: what is sent when, and what is sent again, are
// the client's own decisions, and so are sequences, tickets and pulls of one
// version (docs/protocol/recovery.md, R7). Only the session, which is no part
// of it, is the world's.
std::unique_ptr<WorkerProgram> MakeClientWorker(World* world, Process process,
                                                uint32_t index, uint64_t nonce);

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_CLIENT_WORKER_H_
