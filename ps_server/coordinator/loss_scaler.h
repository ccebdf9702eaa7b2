// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_LOSS_SCALER_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_LOSS_SCALER_H_

#include <cstdint>

#include "proto/checkpoint.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// The loss scale of a job, which changes from step to step: a step with a
// gradient that is not finite halves it, and growth_interval steps without such
// a gradient double it (dynamic loss scaling: Micikevicius et al. 2018, section
// 3.2). In asynchronous jobs each push is a step.
//
// Thread-compatible.
// Invariant: the scale is a power of two, from 1 to 2^24.
class LossScaler {
 public:
  // The lowest scale. Gradients that would need a lower one are too large for
  // float16 even without scaling.
  static constexpr float kLeast = 1;

  // `config` must have its defaults filled in. `position` is where the job
  // resumes; if it has no loss scale, the initial one of `config` is used.
  LossScaler(const proto::LossScale& config, const proto::Position& position);

  // The scale of the next step.
  float scale() const { return scale_; }

  // Records a step whose gradients were computed with `scale`, and whether all
  // were finite. An asynchronous push that was computed with a greater scale
  // than the current one does not halve it again.
  void OnStep(float scale, bool finite);

  // Fills in `position->loss_scale` and `steps_at_loss_scale`.
  void AddTo(proto::Position* position) const;

 private:
  uint64_t growth_interval_;
  float scale_;
  // Number of steps without an overflow since the scale last changed.
  uint64_t steps_ = 0;
};

// Returns `config` with its defaults filled in: 65536 (Micikevicius et al.
// tried 8 to 32768; the first steps lower it if it is too high) and 2000 steps.
proto::LossScale WithDefaults(proto::LossScale config);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_LOSS_SCALER_H_
