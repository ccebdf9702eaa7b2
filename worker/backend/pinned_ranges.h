// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_PINNED_RANGES_H_
#define HOLDFAST_WORKER_BACKEND_PINNED_RANGES_H_

#include <cstddef>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace holdfast {

// The ranges of host memory that are pinned. All GPUs of a process can copy
// from them, whichever backend pinned them, so the backends share one object.
//
// Thread-safe.
class PinnedRanges {
 public:
  void Add(const void* first, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes a range that was added.
  void Remove(const void* first) ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns how many of the `bytes` bytes from `first` on are in the same range
  // as `first`; 0 if `first` is not pinned. A device's copy must not cross the
  // end of a range, even if another range begins there.
  size_t Covered(const void* first, size_t bytes) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  // The end of each range, keyed by its first byte.
  std::map<const char*, const char*> ends_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_PINNED_RANGES_H_
