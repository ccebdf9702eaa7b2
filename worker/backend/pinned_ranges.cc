// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/pinned_ranges.h"

#include <algorithm>
#include <iterator>

namespace holdfast {

void PinnedRanges::Add(const void* first, size_t bytes) {
  const char* const begin = static_cast<const char*>(first);
  absl::MutexLock lock(&mutex_);
  ends_[begin] = begin + bytes;
}

void PinnedRanges::Remove(const void* first) {
  absl::MutexLock lock(&mutex_);
  ends_.erase(static_cast<const char*>(first));
}

size_t PinnedRanges::Covered(const void* first, size_t bytes) const {
  const char* const begin = static_cast<const char*>(first);
  absl::MutexLock lock(&mutex_);
  const auto next = ends_.upper_bound(begin);
  if (next == ends_.begin()) return 0;
  const char* const end = std::prev(next)->second;
  return end <= begin ? 0 : std::min(bytes, static_cast<size_t>(end - begin));
}

}  // namespace holdfast
