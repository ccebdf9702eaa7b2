// SPDX-License-Identifier: Apache-2.0

// Shifts the date; to be preloaded (LD_PRELOAD). The date is the machine's plus
// the number of seconds in the first 8 bytes of the file $SHIFTED_DATE, an
// int64 that may change at any time. A change looks as if somebody had set the
// date: readers of CLOCK_REALTIME see it jump, and a wait for a moment of that
// clock ends when the clock reaches it.
//
// Covers calls through the C library's functions below; Abseil's waits are
// futexes through syscall(). Not covered: the C library's own waits for a date
// (pthread_cond_timedwait and the like).

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
// How often a wait checks whether the date has been set.
constexpr int64_t kLookEvery = kSecond / 50;

template <typename Function>
Function* Next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) Next(&name, #name)

const volatile int64_t* OpenShift() {
  static const int64_t kNone = 0;
  const char* const path = getenv("SHIFTED_DATE");
  if (path == nullptr) return &kNone;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  void* const shift =
      fd < 0 ? MAP_FAILED
             : mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  if (shift == MAP_FAILED) abort();
  close(fd);
  return static_cast<const volatile int64_t*>(shift);
}

int64_t ShiftInSeconds() {
  static const volatile int64_t* const shift = OpenShift();
  return *shift;
}

bool IsDate(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

// Waits as on a machine whose clock is set.
long WaitForDate(long (*next)(long, ...), void* word, long operation,
                 long value, const timespec* until, long mask) {
  for (;;) {
    timespec date;
    clock_gettime(CLOCK_REALTIME, &date);
    const int64_t left = Nanoseconds(*until) - Nanoseconds(date);
    const int64_t slice = std::clamp<int64_t>(left, 0, kLookEvery);
    timespec look;
    static auto* const now = NEXT(clock_gettime);
    now(CLOCK_REALTIME, &look);
    const int64_t at = Nanoseconds(look) + slice;
    look = {at / kSecond, at % kSecond};
    const long result =
        next(SYS_futex, word, operation, value, &look, nullptr, mask);
    if (result != -1 || errno != ETIMEDOUT || slice == left || left <= 0) {
      return result;
    }
  }
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) {
  static auto* const next = NEXT(clock_gettime);
  const int result = next(clock, time);
  if (result == 0 && IsDate(clock)) time->tv_sec += ShiftInSeconds();
  return result;
}

int gettimeofday(timeval* time, void* zone) {
  static auto* const next = NEXT(gettimeofday);
  const int result = next(time, zone);
  if (result == 0) time->tv_sec += ShiftInSeconds();
  return result;
}

time_t time(time_t* time) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (time != nullptr) *time = now.tv_sec;
  return now.tv_sec;
}

long syscall(long number, ...) {
  static auto* const next = NEXT(syscall);
  va_list list;
  va_start(list, number);
  long args[6];
  for (long& arg : args) arg = va_arg(list, long);
  va_end(list);
  const auto* const until = reinterpret_cast<const timespec*>(args[3]);
  if (number == SYS_futex && (args[1] & FUTEX_CLOCK_REALTIME) != 0 &&
      until != nullptr) {
    return WaitForDate(next, reinterpret_cast<void*>(args[0]), args[1], args[2],
                       until, args[5]);
  }
  return next(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

}  // extern "C"
