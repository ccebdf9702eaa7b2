// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/stall_detector.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

const int64_t kStallNanos = absl::ToInt64Nanoseconds(StallDetector::kStall);

int64_t SteadyNanos() {
  return std::chrono::nanoseconds(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StallDetector>> StallDetector::Create() {
  const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  if (fd < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot create a timer: ", strerror(errno)));
  }
  return absl::WrapUnique(new StallDetector(fd));
}

StallDetector::StallDetector(int timer_fd) : timer_fd_(timer_fd) {}

StallDetector::~StallDetector() { close(timer_fd_); }

void StallDetector::Join() { ++polling_; }

bool StallDetector::LeaveToOthers() {
  int polling = polling_;
  do {
    if (polling == 1) return false;
  } while (!polling_.compare_exchange_weak(polling, polling - 1));
  return true;
}

void StallDetector::Enter() {
  const Nanos now = SteadyNanos();
  entered_at_.store(now, std::memory_order_relaxed);
  if (--polling_ > 0) return;
  if (!armed_ ||
      runs_out_at_.load(std::memory_order_relaxed) - now < kStallNanos) {
    armed_ = true;
    SetTimer(now, 2 * kStallNanos);
  }
}

void StallDetector::Return() { ++polling_; }

void StallDetector::SetTimer(Nanos now, Nanos duration) {
  runs_out_at_.store(now + duration, std::memory_order_relaxed);
  itimerspec timer = {};
  timer.it_value = absl::ToTimespec(absl::Nanoseconds(duration));
  PCHECK(timerfd_settime(timer_fd_, 0, &timer, nullptr) == 0);
}

bool StallDetector::AwaitStall() {
  while (!closed_) {
    uint64_t count;
    const ssize_t size = read(timer_fd_, &count, sizeof(count));
    PCHECK(size == sizeof(count) || errno == EINTR);
    if (size != sizeof(count) || closed_) continue;
    armed_ = false;
    if (polling_ > 0) continue;
    // A thread that entered a handler just before relied on armed_ being still
    // set.
    const Nanos now = SteadyNanos();
    const Nanos left = entered_at_ + kStallNanos - now;
    if (left <= 0) return true;
    if (!armed_.exchange(true)) SetTimer(now, left);
  }
  return false;
}

void StallDetector::Close() {
  closed_ = true;
  SetTimer(SteadyNanos(), 1);
}

}  // namespace holdfast
