// SPDX-License-Identifier: Apache-2.0

// A process that evaluates checkpoints (docs/evaluation.md), as
// worker/offline/evaluator_task.h does.
#ifndef HOLDFAST_TESTS_WORLD_EVALUATOR_H_
#define HOLDFAST_TESTS_WORLD_EVALUATOR_H_

#include <cstdint>
#include <memory>

#include "tests/world/world.h"

namespace holdfast::sim {

// It is /job:evaluator/task:0, whatever its process. Its loss for a version is
// LossOf.
std::unique_ptr<WorkerProgram> MakeEvaluator(World* world, Process process,
                                             uint64_t nonce);

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_EVALUATOR_H_
