// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/rate_changes.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace holdfast {

void RateChanges::TakeUp(const proto::Journal& journal) {
  changes_.clear();
  for (const proto::LearningRateChange& change :
       journal.learning_rate_changes()) {
    changes_[change.step()] = change.factor();
  }
}

float RateChanges::FactorAt(uint64_t step) const {
  const auto next = changes_.upper_bound(step);
  return next == changes_.begin() ? 1 : std::prev(next)->second;
}

absl::Status RateChanges::Add(uint64_t step, float factor) {
  if (changes_.size() >= kMost && changes_.count(step) == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the learning rate has been changed ", kMost,
                     " times, the most that the journal keeps; a "
                     "schedule in the job file can change it more often"));
  }
  changes_[step] = factor;
  return absl::OkStatus();
}

void RateChanges::AddTo(Message* changes) const {
  changes->Clear();
  for (const auto& [step, factor] : changes_) {
    proto::LearningRateChange& change = *changes->Add();
    change.set_step(step);
    change.set_factor(factor);
  }
}

}  // namespace holdfast
