// SPDX-License-Identifier: Apache-2.0
#include "common/base/strand.h"

#include <pthread.h>

#include <utility>

#include "absl/time/clock.h"
#include "common/base/clock.h"

namespace holdfast {

Strand::Strand(const std::string& name) : thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

Strand::~Strand() { Stop(); }

void Strand::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  tasks_.push_back({std::move(task), /*is_light=*/false});
}

void Strand::RunOrPost(Task task) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    if (at_work_ || lent_ || !tasks_.empty()) {
      tasks_.push_back({std::move(task), /*is_light=*/true});
      return;
    }
    lent_ = true;
  }
  for (;;) {
    at_work_since_ = absl::ToUnixNanos(SteadyNow());
    task();
    task = nullptr;
    at_work_since_ = 0;
    absl::MutexLock lock(&mutex_);
    if (tasks_.empty() || !tasks_.front().is_light) {
      lent_ = false;
      return;
    }
    task = std::move(tasks_.front().task);
    tasks_.pop_front();
  }
}

void Strand::TickEvery(absl::Duration period, Task tick) {
  Post([this, period, tick = std::move(tick)]() mutable {
    tick_ = std::move(tick);
    tick_period_ = period;
    next_tick_ = SteadyNow() + period;
  });
}

void Strand::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) {
      mutex_.Await(absl::Condition(&stopped_));
      return;
    }
    stopping_ = true;
  }
  thread_.join();
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

void Strand::Run() {
  for (;;) {
    std::deque<Item> tasks;
    bool stopping;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(this, &Strand::HasWork),
                              next_tick_ - SteadyNow());
      mutex_.Await(absl::Condition(this, &Strand::IsBack));
      tasks.swap(tasks_);
      stopping = stopping_;
      at_work_ = true;
    }
    at_work_since_ = absl::ToUnixNanos(SteadyNow());
    for (Item& item : tasks) {
      item.task();
      item.task = nullptr;  // Releases its captures in order, too.
    }
    if (stopping) return;  // Nothing is posted after Stop.
    if (SteadyNow() >= next_tick_) {
      tick_();
      next_tick_ = SteadyNow() + tick_period_;
    }
    at_work_since_ = 0;
    absl::MutexLock lock(&mutex_);
    at_work_ = false;
  }
}

absl::Duration Strand::busy_for() const {
  const int64_t since = at_work_since_;
  return since == 0 ? absl::ZeroDuration()
                    : absl::Nanoseconds(absl::ToUnixNanos(SteadyNow()) - since);
}

}  // namespace holdfast
