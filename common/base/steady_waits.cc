// SPDX-License-Identifier: Apache-2.0

// Makes Abseil's timed waits follow the steady clock in every program that this
// file is linked into: our waits and also gRPC's, whose timers (deadlines of
// calls, alarms, keepalive) are such waits.
//
// Abseil 20220623 turns every timeout into a date and waits for that date: if
// the date is set back by an hour, a wait of a second lasts an hour. All its
// waits use one component that a program may replace: the semaphore that a
// thread sleeps on (absl/synchronization/internal/per_thread_sem.h). This file
// implements that semaphore; it differs from Abseil's only in the clock: it
// converts the date back into the time that remains.
//
// This requires one clock for all dates. Abseil's own clock interpolates
// between readings of the kernel's clock and notices a changed date up to two
// seconds late, but gRPC reads the kernel's clock; so Abseil's clock is
// replaced by the kernel's, too.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "absl/base/config.h"
#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/time/clock.h"

#if !defined(ABSL_LTS_RELEASE_VERSION) || ABSL_LTS_RELEASE_VERSION != 20220623
#error "Check whether this Abseil still waits for dates; later ones need not."
#endif

namespace {

using absl::base_internal::ThreadIdentity;
using absl::synchronization_internal::KernelTimeout;

constexpr int64_t kSecond = 1'000'000'000;

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

int64_t ReadClock(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return Nanoseconds(now);
}

// When a wait ends, by the steady clock. A wait that Abseil interrupts and
// resumes has the same `timeout`, and therefore the same end, even if the date
// was set meanwhile.
timespec SteadyEnd(KernelTimeout timeout) {
  struct Wait {
    int64_t date;
    int64_t end;
  };
  thread_local Wait last = {0, 0};
  const int64_t date = Nanoseconds(timeout.MakeAbsTimespec());
  if (date != last.date) {
    const int64_t left = std::max<int64_t>(date - ReadClock(CLOCK_REALTIME), 0);
    const int64_t now = ReadClock(CLOCK_MONOTONIC);
    last = {date, now + std::min(left, INT64_MAX - now)};
  }
  return {last.end / kSecond, last.end % kSecond};
}

// The posts that no wait has consumed. Abseil zeroes a thread's identity when
// it creates it, and keeps it for longer than any use of it.
std::atomic<int32_t>* PostsOf(ThreadIdentity* identity) {
  static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t));
  return reinterpret_cast<std::atomic<int32_t>*>(identity->waiter_state.data);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

int64_t GetCurrentTimeNanos() { return ReadClock(CLOCK_REALTIME); }

ABSL_NAMESPACE_END
}  // namespace absl

extern "C" {

void ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemPost)(
    ThreadIdentity* identity) {
  std::atomic<int32_t>* const posts = PostsOf(identity);
  if (posts->fetch_add(1, std::memory_order_release) == 0) {
    syscall(SYS_futex, posts, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
  }
}

bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(
    KernelTimeout timeout) {
  std::atomic<int32_t>* const posts = PostsOf(
      absl::synchronization_internal::GetOrCreateCurrentThreadIdentity());
  timespec end;
  if (timeout.has_timeout()) end = SteadyEnd(timeout);
  for (;;) {
    int32_t count = posts->load(std::memory_order_relaxed);
    while (count != 0) {
      if (posts->compare_exchange_weak(count, count - 1,
                                       std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        return true;
      }
    }
    // `end` is a time of CLOCK_MONOTONIC, the default without
    // FUTEX_CLOCK_REALTIME.
    const long woken =
        syscall(SYS_futex, posts, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0,
                timeout.has_timeout() ? &end : nullptr, nullptr,
                FUTEX_BITSET_MATCH_ANY);
    if (woken == -1 && errno == ETIMEDOUT) return false;
  }
}

}  // extern "C"
