// An operator who changes the learning rate, as `holdfast set` does, and again
// where he gets no answer.
#ifndef HOLDFAST_TESTS_WORLD_SET_COMMAND_H_
#define HOLDFAST_TESTS_WORLD_SET_COMMAND_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "tests/world/world.h"

namespace holdfast::sim {

// Has RateFactorOf(step) hold from `step` on, unless the job has come too far,
// or has ended. `world` must outlive what was asked.
void SetRate(World* world, uint64_t step);

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_SET_COMMAND_H_
