// SPDX-License-Identifier: Apache-2.0

// An operator who changes the learning rate, as `holdfast set` does, and asks
// again after getting no answer.
#ifndef HOLDFAST_TESTS_WORLD_SET_COMMAND_H_
#define HOLDFAST_TESTS_WORLD_SET_COMMAND_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "tests/world/world.h"

namespace holdfast::sim {

// Sets RateFactorOf(step) from `step` on, unless the job has passed that step
// or has ended. `world` must outlive the request.
void SetRate(World* world, uint64_t step);

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_SET_COMMAND_H_
