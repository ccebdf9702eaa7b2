// SPDX-License-Identifier: Apache-2.0

// The scalars of an optimizer at a step.
//
// Computing them takes powers and cosines, whose last bits differ between math
// libraries. So only the coordinator computes them, and sends the results to
// the shards.
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_SCHEDULE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_SCHEDULE_H_

#include <cstdint>

#include "proto/cluster.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// Returns the learning rate at global step `step`, by the formulas given with
// proto::LearningRateSchedule, but at most the greatest float32, because with a
// decay_rate above 1 the rate grows without bound. Never NaN for a valid
// config.
double LearningRateAt(const proto::Optimizer& config, uint64_t step);

// Returns the scalars of global step `step`, which is the `update`-th step to
// change something, counted from 1. The learning rate is multiplied by
// `rate_factor`.
proto::StepScalars ScalarsAt(const proto::Optimizer& config, uint64_t step,
                             uint64_t update, float rate_factor = 1);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_SCHEDULE_H_
