#ifndef HOLDFAST_WORKER_BACKEND_PINNED_RANGES_H_
#define HOLDFAST_WORKER_BACKEND_PINNED_RANGES_H_

#include <cstddef>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace holdfast {

// Which memory of the host is pinned. Whatever pins it, all GPUs of a process
// can copy from it, so their backends share one object.
//
// Thread-safe.
class PinnedRanges {
 public:
  void Add(const void* first, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of one that was added.
  void Remove(const void* first) ABSL_LOCKS_EXCLUDED(mutex_);

  // Of the `bytes` from `first` on, how many lie in the range that `first` lies
  // in: 0 where it is not pinned. A device copies no further at a time, even if
  // another range begins there.
  size_t Covered(const void* first, size_t bytes) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  // By the first byte, the one behind the last.
  std::map<const char*, const char*> ends_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_PINNED_RANGES_H_
