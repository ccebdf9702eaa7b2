// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/save_schedule.h"

#include <algorithm>

namespace holdfast {

void SaveSchedule::Begin(const proto::Checkpoints& when, bool asynchronous,
                         uint64_t step, absl::Time now) {
  when_ = when;
  asynchronous_ = asynchronous;
  last_failed_ = false;
  begun_ = now;
  step_ = saved_step_ = step;
}

absl::Duration SaveSchedule::every() const {
  if (when_.has_every_seconds()) {
    return when_.every_seconds() > 0 ? absl::Seconds(when_.every_seconds())
                                     : absl::InfiniteDuration();
  }
  if (when_.every_steps() > 0) return absl::InfiniteDuration();
  return std::max(kLeastEvery, kLeastTimesCost * cost_);
}

bool SaveSchedule::IsDue(uint64_t step, absl::Time now) const {
  if (step <= saved_step_) return false;
  if (const uint64_t every = when_.every_steps(); every > 0) {
    const bool passed = step / every > step_ / every;
    if (passed && (asynchronous_ || step % every == 0)) return true;
    if (last_failed_ && step / every > saved_step_ / every) return true;
  }
  return now - begun_ >= every();
}

void SaveSchedule::OnBegun(uint64_t step, absl::Time now) {
  begun_ = now;
  step_ = step;
}

void SaveSchedule::OnSaved(absl::Time now) {
  last_failed_ = false;
  saved_step_ = step_;
  cost_ = now - begun_;
}

void SaveSchedule::OnFailed(absl::Time now) {
  last_failed_ = true;
  cost_ = now - begun_;
}

}  // namespace holdfast
