// SPDX-License-Identifier: Apache-2.0
#include "client/background_calls.h"

#include <thread>
#include <utility>

#include "common/base/clock.h"

namespace holdfast {

bool BackgroundCalls::Call::WaitUntilDone(absl::Time until) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(this, &Call::done),
                                 until - SteadyNow());
}

absl::Status BackgroundCalls::Call::status() const {
  absl::MutexLock lock(&mutex_);
  return *status_;
}

BackgroundCalls::~BackgroundCalls() {
  const auto none = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return running_ == 0;
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&none));
}

std::shared_ptr<BackgroundCalls::Call> BackgroundCalls::Start(
    std::function<absl::Status()> function) {
  auto call = std::make_shared<Call>();
  {
    absl::MutexLock lock(&mutex_);
    ++running_;
  }
  std::thread([this, call, function = std::move(function)]() mutable {
    absl::Status status = function();
    // What it has captured may be destroyed once the call has been waited for.
    function = nullptr;
    {
      absl::MutexLock lock(&call->mutex_);
      call->status_ = std::move(status);
    }
    absl::MutexLock lock(&mutex_);
    --running_;
  }).detach();
  return call;
}

}  // namespace holdfast
