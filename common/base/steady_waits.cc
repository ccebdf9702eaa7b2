// Has Abseil's timed waits follow the steady clock, in every program that this
// is linked into: ours and, inside it, gRPC's, whose timers (deadlines of
// calls, alarms, keepalive) are waits of this kind.
//
// Abseil 20220623 turns every timeout into a date and waits for that date: a
// date that is set back by an hour makes a wait of a second last an hour. It
// has one point below all its waits that a program may replace, the semaphore
// that a thread sleeps on (absl/synchronization/internal/per_thread_sem.h); so
// this is that semaphore, and differs from Abseil's in the clock alone: it
// turns the date back into what is left until then.
//
// For that everybody has to mean the same date. Abseil's own clock, which is
// interpolated between readings of the kernel's, follows a date that was set
// two seconds late, and gRPC makes its dates by the kernel's clock; so Abseil's
// is replaced by that as well.

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
#error "See whether this Abseil still waits for dates; later ones need not."
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
// takes up again has the same `timeout`, and so the same end, even if the date
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

// Posts that no wait has taken. Abseil keeps a thread's identity, zeroed when
// it is made, for longer than any use of it.
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
    // Until a moment of CLOCK_MONOTONIC, as nothing else is asked for.
    const long woken =
        syscall(SYS_futex, posts, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0,
                timeout.has_timeout() ? &end : nullptr, nullptr,
                FUTEX_BITSET_MATCH_ANY);
    if (woken == -1 && errno == ETIMEDOUT) return false;
  }
}

}  // extern "C"
