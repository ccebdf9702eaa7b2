// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/call_threads.h"

#include <pthread.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// A thread calls for help after it has found this many completed operations in
// a row without waiting.
constexpr int kMany = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<CallThreads>> CallThreads::Start(
    CallQueue* queue, int threads, const std::string& name) {
  HOLDFAST_ASSIGN_OR_RETURN(auto stall, StallDetector::Create());
  auto started =
      absl::WrapUnique(new CallThreads(queue, threads, std::move(stall)));
  for (std::thread& thread : started->threads_) {
    pthread_setname_np(thread.native_handle(), name.c_str());
  }
  return started;
}

CallThreads::CallThreads(CallQueue* queue, int threads,
                         std::unique_ptr<StallDetector> stall)
    : queue_(queue), most_(threads), stall_(std::move(stall)) {
  for (int i = 0; i < threads + 1; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

CallThreads::~CallThreads() {
  queue_->Close();
  for (std::thread& thread : threads_) thread.join();
}

void CallThreads::Run() {
  const auto has_part = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return over_ || help_wanted_ || !watched_;
  };
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(&has_part));
    if (over_) return;
    if (help_wanted_) {
      help_wanted_ = false;
    } else {
      watched_ = true;
      mutex_.Unlock();
      const bool stalled = stall_->AwaitStall();
      mutex_.Lock();
      watched_ = false;
      if (!stalled) continue;
    }
    ++serving_;
    stall_->Join();
    mutex_.Unlock();
    Serve();
    mutex_.Lock();
  }
}

void CallThreads::Serve() {
  int found_at_once = 0;
  for (;;) {
    CallQueue::Completion completion;
    CallQueue::Look look = queue_->LookOnce(&completion);
    if (look == CallQueue::Look::kNothing) {
      found_at_once = 0;
      if (LeaveToOthers()) return;
      look = queue_->LookUntil(absl::InfiniteFuture(), &completion);
    } else if (look == CallQueue::Look::kFound && ++found_at_once == kMany) {
      found_at_once = 0;
      CallForHelp();
    }
    if (look == CallQueue::Look::kClosed) break;
    stall_->Enter();
    completion.Happen();
    stall_->Return();
  }
  absl::MutexLock lock(&mutex_);
  over_ = true;
  stall_->Close();
}

void CallThreads::CallForHelp() {
  absl::MutexLock lock(&mutex_);
  if (serving_ < most_) help_wanted_ = true;
}

bool CallThreads::LeaveToOthers() {
  absl::MutexLock lock(&mutex_);
  help_wanted_ = false;
  if (!stall_->LeaveToOthers()) return false;
  --serving_;
  return true;
}

}  // namespace holdfast
