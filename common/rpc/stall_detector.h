#ifndef HOLDFAST_COMMON_RPC_STALL_DETECTOR_H_
#define HOLDFAST_COMMON_RPC_STALL_DETECTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace holdfast {

// Notices that nobody polls a queue because every thread that does has been in
// a handler for about a millisecond.
//
// Threads that poll report when they enter a handler and return from it. The
// last to enter one sets a timer (timerfd, CLOCK_MONOTONIC) on which another
// thread sleeps in AwaitStall. To set it is a system call of up to 3 us, and a
// thread that is woken costs more; so it is set to run out after 2 * kStall,
// and is put off at most once per kStall by later handlers: it runs out in a
// stall, and once after the last of the handlers that were short.
//
// Thread-safe; AwaitStall is for one thread at a time.
class StallDetector {
 public:
  // A stall is noticed after this time, or up to twice as long. A larger value
  // has calls wait longer for a slow handler, a smaller one takes more system
  // calls.
  static constexpr absl::Duration kStall = absl::Milliseconds(1);

  // Errors: RESOURCE_EXHAUSTED when there is no file descriptor left.
  static absl::StatusOr<std::unique_ptr<StallDetector>> Create();
  ~StallDetector();

  StallDetector(const StallDetector&) = delete;
  StallDetector& operator=(const StallDetector&) = delete;

  // The calling thread polls from now on.
  void Join();
  // The calling thread stops polling, unless no other thread polls. False: it
  // has to go on.
  bool LeaveToOthers();

  // The calling thread, which polls, enters a handler and comes back.
  void Enter();
  void Return();

  // Waits until no thread has polled for kStall while some were in handlers.
  // False: closed.
  bool AwaitStall();

  // Ends this AwaitStall and all that follow.
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
  // The timer is set, or has run out and AwaitStall has not seen it yet.
  std::atomic<bool> armed_{false};
  std::atomic<Nanos> runs_out_at_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_STALL_DETECTOR_H_
