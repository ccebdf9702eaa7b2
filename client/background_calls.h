// SPDX-License-Identifier: Apache-2.0
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

// Runs blocking calls, each on its own thread, for callers that cannot block
// for long.
//
// Thread-safe.
class BackgroundCalls {
 public:
  // A call that was started. It continues even if the caller drops its pointer
  // to this object.
  class Call {
   public:
    // Waits until the call has returned, or until `until` (of the steady
    // clock); returns whether the call has returned.
    bool WaitUntilDone(absl::Time until) ABSL_LOCKS_EXCLUDED(mutex_);
    // What the call returned. Requires that it has returned.
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
  // Waits for all calls; the caller must make sure that they end.
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
