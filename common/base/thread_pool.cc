// SPDX-License-Identifier: Apache-2.0
#include "common/base/thread_pool.h"

#include <pthread.h>

namespace holdfast {

ThreadPool::ThreadPool(int threads, const std::string& name) {
  for (int i = 1; i < threads; ++i) {
    helpers_.emplace_back([this] { Help(); });
    pthread_setname_np(helpers_.back().native_handle(),
                       name.substr(0, 15).c_str());
  }
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  begun_.SignalAll();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::Run(Loop& loop) {
  for (;;) {
    const size_t i = loop.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= loop.count) return;
    loop.work(i);
  }
}

void ThreadPool::ParallelFor(size_t count,
                             absl::FunctionRef<void(size_t)> work) {
  Loop loop{count, work};
  if (helpers_.empty() || count < 2) return Run(loop);
  {
    absl::MutexLock lock(&mutex_);
    open_ = &loop;
  }
  // Not under the lock: waiters that are signalled while the mutex is held wake
  // one after another.
  begun_.SignalAll();
  Run(loop);
  absl::MutexLock lock(&mutex_);
  open_ = nullptr;
  while (loop.helpers > 0) helped_.Wait(&mutex_);
}

void ThreadPool::Help() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    while (open_ == nullptr && !stopping_) begun_.Wait(&mutex_);
    if (stopping_) return;
    Loop& loop = *open_;
    ++loop.helpers;
    mutex_.Unlock();
    Run(loop);
    mutex_.Lock();
    if (open_ == &loop) open_ = nullptr;
    if (--loop.helpers == 0) helped_.Signal();
  }
}

}  // namespace holdfast
