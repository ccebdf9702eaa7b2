// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_BASE_STRAND_H_
#define HOLDFAST_COMMON_BASE_STRAND_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace holdfast {

// A thread that runs the tasks posted to it one at a time, in the order in
// which they were posted.
//
// Each event machine runs on a strand: every call to it is posted, so the
// machine needs no locks, and gRPC's threads are not held up by its longer
// work.
//
// Thread-safe. Tasks may post tasks, but must not stop the strand.
class Strand {
 public:
  using Task = absl::AnyInvocable<void()>;

  // `name` is the thread's name in debuggers and top, which is cut to 15 bytes.
  explicit Strand(const std::string& name);
  // Calls Stop.
  ~Strand();

  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  // Runs `task` after all tasks posted before it. Once Stop has been called,
  // `task` is destroyed without being run.
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

  // Like Post, but for tasks that take no longer than waking the strand's own
  // thread: if the strand is idle, the calling thread itself runs `task`, and
  // also the tasks that other threads pass to RunOrPost meanwhile, before
  // RunOrPost returns.
  void RunOrPost(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on, runs `tick` between tasks whenever `period` has passed since
  // the last tick. A busy strand ticks late, and never twice to catch up. Must
  // be called at most once.
  void TickEvery(absl::Duration period, Task tick) ABSL_LOCKS_EXCLUDED(mutex_);

  // How long the strand has been busy without a pause; zero if it is idle.
  absl::Duration busy_for() const;

  // Runs the tasks that have been posted, but no tick, and ends the thread.
  // Tasks posted later are dropped. Returns when no task is running any more.
  // May be called repeatedly.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Item {
    Task task;
    bool is_light;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !lent_ && (stopping_ || !tasks_.empty());
  }
  bool IsBack() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !lent_; }

  // When the current work began, in nanoseconds of the steady clock; 0 if the
  // strand is idle.
  std::atomic<int64_t> at_work_since_{0};

  absl::Mutex mutex_;
  std::deque<Item> tasks_ ABSL_GUARDED_BY(mutex_);
  // Whether the strand's own thread is running tasks.
  bool at_work_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether another thread is running tasks, in RunOrPost.
  bool lent_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  // Used only by the strand's own thread.
  Task tick_;
  absl::Duration tick_period_ = absl::InfiniteDuration();
  absl::Time next_tick_ = absl::InfiniteFuture();

  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_STRAND_H_
