// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/step_timer.h"

#include <algorithm>

namespace holdfast {

void DurationCounts::Add(absl::Duration duration) {
  const double seconds = std::max(absl::ToDoubleSeconds(duration), 0.0);
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[bound - kBounds.begin()];
  sum_seconds_ += seconds;
}

void DurationCounts::AddTo(proto::DurationHistogram* histogram) const {
  histogram->mutable_bounds()->Assign(kBounds.begin(), kBounds.end());
  uint64_t total = 0;
  for (const uint64_t count : counts_) {
    total += count;
    histogram->add_counts(total);
  }
  histogram->set_sum_seconds(sum_seconds_);
}

void StepTimer::OnOpened(GlobalStep step, absl::Time now) {
  open_ = step;
  opened_ = now;
  complete_.reset();
  if (watch_ != nullptr) watch_->OnStepOpened(step, now);
}

void StepTimer::OnClosed(absl::Time now) {
  OnComplete(now);
  if (opened_.has_value()) {
    collect_.Add(*complete_ - *opened_);
    if (watch_ != nullptr) {
      watch_->OnStepClosed(open_, *opened_, *complete_, now);
    }
  }
  committing_since_ = complete_;
  committing_ = open_;
  closed_ = now;
  opened_.reset();
  complete_.reset();
}

void StepTimer::OnCommitted(absl::Time now) {
  if (committing_since_.has_value()) {
    commit_.Add(now - *committing_since_);
    if (watch_ != nullptr) watch_->OnStepCommitted(committing_, closed_, now);
  }
  committing_since_.reset();
}

void StepTimer::Reset() {
  opened_.reset();
  complete_.reset();
  committing_since_.reset();
}

void StepTimer::AddTo(proto::StepTimes* times) const {
  collect_.AddTo(times->mutable_collect());
  commit_.AddTo(times->mutable_commit());
}

}  // namespace holdfast
