// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/divergence_watch.h"

#include "ps_server/coordinator/loss_scaler.h"

namespace holdfast {
namespace {

// The limit if the job does not set one. A job whose values are not finite has
// only contributions that are not finite from then on; bad batches alone do not
// add up to this many in a row.
constexpr uint64_t kDefaultLimit = 100;

}  // namespace

DivergenceWatch::DivergenceWatch(const proto::Declaration& declaration,
                                 const proto::Position& position)
    : limit_(declaration.has_max_consecutive_not_finite()
                 ? declaration.max_consecutive_not_finite()
                 : kDefaultLimit),
      count_(position.consecutive_not_finite()),
      diverged_(limit_ > 0 && count_ >= limit_) {}

void DivergenceWatch::OnContribution(uint64_t examples, bool not_finite,
                                     float loss_scale) {
  if (not_finite && loss_scale > LossScaler::kLeast) return;
  if (not_finite) {
    ++count_;
    if (limit_ > 0 && count_ >= limit_) diverged_ = true;
  } else if (examples > 0) {
    count_ = 0;
  }
}

void DivergenceWatch::AddTo(proto::Position* position) const {
  position->set_consecutive_not_finite(count_);
}

}  // namespace holdfast
