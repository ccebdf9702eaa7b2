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

// Threads that poll a queue for as long as they live, and run the handlers of
// what they find.
//
// As few as possible poll (CallQueue tells why): one, which another joins for
// as long as there is always something to be found, and so on up to `threads`;
// and one more when all that poll have been in handlers for about a
// millisecond, so that `threads` slow handlers hold up nobody else. The others
// sleep outside of gRPC, one of them on the timer of the StallDetector.
class CallThreads {
 public:
  // Starts threads + 1 of them. `name` is theirs, as debuggers and top show it;
  // at most 15 bytes. Errors: RESOURCE_EXHAUSTED when there is no file
  // descriptor left.
  static absl::StatusOr<std::unique_ptr<CallThreads>> Start(
      CallQueue* queue, int threads, const std::string& name);
  // Closes the queue, and waits until nothing is under way.
  ~CallThreads();

  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

 private:
  CallThreads(CallQueue* queue, int threads,
              std::unique_ptr<StallDetector> stall);

  // What each thread does.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Polls until another thread does, or the queue is closed.
  void Serve() ABSL_LOCKS_EXCLUDED(mutex_);
  // Has another thread join, unless `threads` serve.
  void CallForHelp() ABSL_LOCKS_EXCLUDED(mutex_);
  bool LeaveToOthers() ABSL_LOCKS_EXCLUDED(mutex_);

  CallQueue* const queue_;
  const int most_;
  const std::unique_ptr<StallDetector> stall_;

  absl::Mutex mutex_;
  // Threads in Serve, those in handlers among them.
  int serving_ ABSL_GUARDED_BY(mutex_) = 0;
  // Another thread is to serve.
  bool help_wanted_ ABSL_GUARDED_BY(mutex_) = true;
  // A thread waits for a stall.
  bool watched_ ABSL_GUARDED_BY(mutex_) = false;
  // The queue is closed, and nothing comes any more.
  bool over_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> threads_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_CALL_THREADS_H_
