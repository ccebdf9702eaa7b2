// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_CALL_THREADS_H_
#define HOLDFAST_COMMON_RPC_CALL_THREADS_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/stall_detector.h"

namespace holdfast {

// Threads that poll a queue throughout their lives, and run the handlers of the
// completions that they find.
//
// As few threads as possible poll (CallQueue says why): one, which a second one
// joins if the queue is never empty, and so on up to `threads`; and one more
// than that if all polling threads have been in handlers for about a
// millisecond, so that `threads` slow handlers do not hold up other calls. The
// remaining threads sleep outside of gRPC, one of them on the timer of the
// StallDetector.
class CallThreads {
 public:
  // Starts `threads` + 1 threads. `name` is their name as debuggers and top
  // show it; at most 15 bytes.
  // Errors: RESOURCE_EXHAUSTED when no file descriptor is left.
  static absl::StatusOr<std::unique_ptr<CallThreads>> Start(
      CallQueue* queue, int threads, const std::string& name);
  // Closes the queue, and waits until no operation is in progress.
  ~CallThreads();

  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

 private:
  CallThreads(CallQueue* queue, int threads,
              std::unique_ptr<StallDetector> stall);

  // The body of each thread.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Polls until another thread does, or the queue is closed.
  void Serve() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes another thread serve, unless `threads` threads serve already.
  void CallForHelp() ABSL_LOCKS_EXCLUDED(mutex_);
  bool LeaveToOthers() ABSL_LOCKS_EXCLUDED(mutex_);

  CallQueue* const queue_;
  const int most_;
  const std::unique_ptr<StallDetector> stall_;

  absl::Mutex mutex_;
  // The number of threads in Serve, including those in handlers.
  int serving_ ABSL_GUARDED_BY(mutex_) = 0;
  // Whether another thread should serve.
  bool help_wanted_ ABSL_GUARDED_BY(mutex_) = true;
  // Whether a thread is waiting for a stall.
  bool watched_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether the queue is closed and drained.
  bool over_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> threads_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_CALL_THREADS_H_
