// SPDX-License-Identifier: Apache-2.0
#include "client/value_sets.h"

#include <algorithm>

#include "absl/memory/memory.h"

namespace holdfast::client {

std::shared_ptr<ValueSets> ValueSets::Make(
    size_t num_variables, std::vector<absl::Span<float>> memory) {
  return absl::WrapUnique(new ValueSets(num_variables, std::move(memory)));
}

std::shared_ptr<ValueSets::Set> ValueSets::Take() {
  Set* set;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = std::find(free_.begin(), free_.end(), true);
    if (found != free_.end()) {
      *found = false;
      set = sets_[found - free_.begin()].get();
    } else {
      set = sets_.emplace_back(std::make_unique<Set>()).get();
      set->number = static_cast<int>(free_.size());
      set->values.Resize(num_variables_);
      set->values.SetMemory(memory_);
      free_.push_back(false);
    }
  }
  return std::shared_ptr<Set>(
      set, [self = shared_from_this()](Set* set) { self->GiveBack(set); });
}

void ValueSets::GiveBack(Set* set) {
  set->values.Release();
  absl::MutexLock lock(&mutex_);
  free_[set->number] = true;
}

}  // namespace holdfast::client
