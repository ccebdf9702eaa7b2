// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/loss_scaler.h"

#include <algorithm>

namespace holdfast {
namespace {

// The highest scale. With it, a loss gradient of 2^-8, which is that of one
// example in a batch of 256, fills the range of float16; a model without any
// gradients must not drive the scale to infinity.
constexpr float kGreatest = 1 << 24;

}  // namespace

LossScaler::LossScaler(const proto::LossScale& config,
                       const proto::Position& position)
    : growth_interval_(config.growth_interval()),
      scale_(position.loss_scale() > 0 ? position.loss_scale()
                                       : config.initial()),
      steps_(position.steps_at_loss_scale()) {}

void LossScaler::OnStep(float scale, bool finite) {
  if (!finite) {
    if (scale < scale_ * 2) {
      scale_ = std::max(scale / 2, kLeast);
      steps_ = 0;
    }
    return;
  }
  if (++steps_ < growth_interval_) return;
  scale_ = std::min(scale_ * 2, kGreatest);
  steps_ = 0;
}

void LossScaler::AddTo(proto::Position* position) const {
  position->set_loss_scale(scale_);
  position->set_steps_at_loss_scale(steps_);
}

proto::LossScale WithDefaults(proto::LossScale config) {
  if (!config.has_initial()) config.set_initial(65536);
  if (!config.has_growth_interval()) config.set_growth_interval(2000);
  return config;
}

}  // namespace holdfast
