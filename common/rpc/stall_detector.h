// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_STALL_DETECTOR_H_
#define HOLDFAST_COMMON_RPC_STALL_DETECTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace holdfast {

// Detects stalls: that a queue is not polled because every polling thread has
// been in a handler for about a millisecond.
//
// Threads that poll report when they enter a handler and return from it. When
// the last polling thread enters a handler, so that no thread polls, it sets a
// timer (timerfd, CLOCK_MONOTONIC) on which another thread sleeps in
// AwaitStall. Setting the timer is a system call of up to 3 us, and waking a
// thread costs more. So the timer is set to expire after 2 * kStall, and later
// handlers postpone it at most once per kStall: it expires in a stall, and once
// after the last of a series of short handlers.
//
// Thread-safe; AwaitStall is for one thread at a time.
class StallDetector {
 public:
  // A stall is noticed after once to twice this time. A larger value makes
  // calls wait longer behind slow handlers, a smaller one takes more system
  // calls.
  static constexpr absl::Duration kStall = absl::Milliseconds(1);

  // Errors: RESOURCE_EXHAUSTED when no file descriptor is left.
  static absl::StatusOr<std::unique_ptr<StallDetector>> Create();
  ~StallDetector();

  StallDetector(const StallDetector&) = delete;
  StallDetector& operator=(const StallDetector&) = delete;

  // Says that the calling thread polls from now on.
  void Join();
  // Says that the calling thread stops polling, and returns true. If no other
  // thread polls, returns false instead, and the calling thread must continue.
  bool LeaveToOthers();

  // Say that the calling thread, which polls, enters a handler, and that it has
  // returned from it.
  void Enter();
  void Return();

  // Waits for a stall: until no thread has polled for kStall while threads were
  // in handlers. Returns false after Close.
  bool AwaitStall();

  // Makes the current call of AwaitStall, and all later ones, return false.
  void Close();

 private:
  // In nanoseconds of CLOCK_MONOTONIC.
  using Nanos = int64_t;

  explicit StallDetector(int timer_fd);
  void SetTimer(Nanos now, Nanos duration);

  const int timer_fd_;
  std::atomic<int> polling_{0};
  // When a thread last entered a handler.
  std::atomic<Nanos> entered_at_{0};
  // Whether the timer is set, or has expired and AwaitStall has not seen it
  // yet.
  std::atomic<bool> armed_{false};
  std::atomic<Nanos> runs_out_at_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_STALL_DETECTOR_H_
