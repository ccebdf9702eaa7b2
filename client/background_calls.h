#ifndef HOLDFAST_CLIENT_BACKGROUND_CALLS_H_
#define HOLDFAST_CLIENT_BACKGROUND_CALLS_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace holdfast {

// Blocking calls, each on a thread of its own, for callers who cannot wait for
// long at a time.
//
// Thread-safe.
class BackgroundCalls {
 public:
  // One of them. A call whose handle is let go of goes on.
  class Call {
   public:
    // Waits until it has returned, or until the time (of the steady clock), and
    // returns whether it has.
    bool WaitUntilDone(absl::Time until) ABSL_LOCKS_EXCLUDED(mutex_);
    // What it has returned; to be called once it has.
    absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

   private:
    friend class BackgroundCalls;

    bool done() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return status_.has_value();
    }

    mutable absl::Mutex mutex_;
    std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
  };

  BackgroundCalls() = default;
  // Waits for all calls: see to it that they end.
  ~BackgroundCalls() ABSL_LOCKS_EXCLUDED(mutex_);

  BackgroundCalls(const BackgroundCalls&) = delete;
  BackgroundCalls& operator=(const BackgroundCalls&) = delete;

  std::shared_ptr<Call> Start(std::function<absl::Status()> function)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_BACKGROUND_CALLS_H_
