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

// One thread that runs what it is given, one after the other, in the order
// given.
//
// An event machine lives on one: whoever has a message for it posts the call,
// and so the machine needs no locks, and the threads of gRPC do none of its
// longer work.
//
// Thread-safe. What is posted may itself post, but must not stop the strand.
class Strand {
 public:
  using Task = absl::AnyInvocable<void()>;

  // `name` is the thread's, as debuggers and top show it; the first 15 bytes
  // count.
  explicit Strand(const std::string& name);
  // Stops.
  ~Strand();

  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  // Runs `task` after all that was posted before. Once the strand has stopped,
  // `task` is destroyed without being run.
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

  // As Post, for tasks that take no longer than waking the strand's own thread
  // would: where the strand rests, the calling thread runs `task` before it
  // returns, and those that come so meanwhile.
  void RunOrPost(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on runs `tick` between tasks, each time `period` has passed since
  // the last. A busy strand ticks late, never twice to catch up. To be called
  // at most once.
  void TickEvery(absl::Duration period, Task tick) ABSL_LOCKS_EXCLUDED(mutex_);

  // How long the strand has been at work without a rest. Zero: it rests.
  absl::Duration busy_for() const;

  // Runs what has been posted, but no tick, and ends the thread. What is posted
  // later is dropped. Returns when nothing runs any more. May be repeated.
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

  // When the work that is being done was begun, in nanoseconds of the steady
  // clock. 0: none is.
  std::atomic<int64_t> at_work_since_{0};

  absl::Mutex mutex_;
  std::deque<Item> tasks_ ABSL_GUARDED_BY(mutex_);
  // The strand's thread is at work.
  bool at_work_ ABSL_GUARDED_BY(mutex_) = false;
  // Another thread is: in RunOrPost.
  bool lent_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  // Used by the thread alone.
  Task tick_;
  absl::Duration tick_period_ = absl::InfiniteDuration();
  absl::Time next_tick_ = absl::InfiniteFuture();

  std::thread thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_STRAND_H_
