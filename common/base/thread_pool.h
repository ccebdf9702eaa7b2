// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_BASE_THREAD_POOL_H_
#define HOLDFAST_COMMON_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace holdfast {

// Threads that help their owner with loops, and sleep between them.
//
// Thread-compatible: one loop at a time.
class ThreadPool {
 public:
  // Starts `threads` - 1 threads; the caller of ParallelFor is the remaining
  // one. `name` is their name in debuggers and top, which is cut to 15 bytes.
  ThreadPool(int threads, const std::string& name);
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls work(i) once for each i in [0, count), in any order, on several
  // threads at a time, and returns when all calls have returned. Does not wait
  // for helpers that are slow to wake. Must not be called from inside `work`.
  void ParallelFor(size_t count, absl::FunctionRef<void(size_t)> work)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Loop {
    const size_t count;
    const absl::FunctionRef<void(size_t)> work;
    std::atomic<size_t> next{0};
    // The number of threads in the loop, not counting the caller. Guarded by
    // mutex_.
    int helpers = 0;
  };

  static void Run(Loop& loop);
  void Help() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  absl::CondVar begun_;
  absl::CondVar helped_;
  // The loop that helpers may join; null if there is none, or if a thread has
  // found that no work is left in it.
  Loop* open_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> helpers_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_THREAD_POOL_H_
