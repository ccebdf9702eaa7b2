// The scalars of an optimizer at a step.
//
// They need powers and cosines, whose last bits differ from one math library to
// the next; so the coordinator alone computes them, and shards are told them as
// they are.
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_SCHEDULE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_SCHEDULE_H_

#include <cstdint>

#include "proto/cluster.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// The learning rate at global step `step`, by the formulas beside
// proto::LearningRateSchedule, and at most the greatest float32: a decay_rate
// above 1 has no end. Never NaN for a config that breaks no rule.
double LearningRateAt(const proto::Optimizer& config, uint64_t step);

// What the shards are told for the step that starts at global step `step` and
// is the `update`-th that changes something, counted from 1. The learning rate
// is multiplied by `rate_factor`.
proto::StepScalars ScalarsAt(const proto::Optimizer& config, uint64_t step,
                             uint64_t update, float rate_factor = 1);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_SCHEDULE_H_
