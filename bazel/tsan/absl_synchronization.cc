// SPDX-License-Identifier: Apache-2.0

// Tells ThreadSanitizer about the order that Abseil's locks establish.
//
// Debian's libabsl is not built with ThreadSanitizer, which therefore sees
// neither the atomics in absl::Mutex nor any order between two critical
// sections, and would report accesses guarded by a Mutex as races. The
// functions below override Abseil's own (the dynamic linker prefers the
// executable's, for gRPC's locks too), call them, and declare the order.
//
// A reader's unlock is declared to happen before the next reader's lock,
// although it need not: races between two readers of the same lock are not
// found. absl::Mutex's own deadlock detection works as in Abseil.

#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "bazel/tsan/next.h"

extern "C" const char* __tsan_default_options() {
  // Libraries without instrumentation synchronize in ways that ThreadSanitizer
  // does not see; races inside them are not reported.
  return "ignore_noninstrumented_modules=1:halt_on_error=1";
}

namespace {

void Acquired(const void* object) { __tsan_acquire(const_cast<void*>(object)); }
void Releasing(const void* object) {
  __tsan_release(const_cast<void*>(object));
}

// Conditions are evaluated inside Abseil, by whichever thread holds the lock,
// so a thread must release the data of its condition before it waits.
class OrderedCondition {
 public:
  OrderedCondition(const absl::Mutex* mutex, const absl::Condition& condition)
      : mutex_(mutex), original_(condition), ordered_(&Eval, this) {}

  const absl::Condition& get() const { return ordered_; }

 private:
  static bool Eval(OrderedCondition* self) {
    Acquired(self->mutex_);
    const bool result = self->original_.Eval();
    Releasing(self->mutex_);
    return result;
  }

  const absl::Mutex* const mutex_;
  const absl::Condition& original_;
  const absl::Condition ordered_;
};

}  // namespace

// Abseil's own function, by its mangled name in Debian's inline namespace.
#define HOLDFAST_ABSEIL(type, name) \
  static auto* const abseil =       \
      ::holdfast::tsan::Next<type>("_ZN4absl7debian3" name)
#define HOLDFAST_ABSEIL_CONST(type, name) \
  static auto* const abseil =             \
      ::holdfast::tsan::Next<type>("_ZNK4absl7debian3" name)

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  HOLDFAST_ABSEIL(void(Mutex*), "5Mutex4LockEv");
  abseil(this);
  Acquired(this);
}

void Mutex::Unlock() {
  HOLDFAST_ABSEIL(void(Mutex*), "5Mutex6UnlockEv");
  Releasing(this);
  abseil(this);
}

bool Mutex::TryLock() {
  HOLDFAST_ABSEIL(bool(Mutex*), "5Mutex7TryLockEv");
  if (!abseil(this)) return false;
  Acquired(this);
  return true;
}

void Mutex::ReaderLock() {
  HOLDFAST_ABSEIL(void(Mutex*), "5Mutex10ReaderLockEv");
  abseil(this);
  Acquired(this);
}

void Mutex::ReaderUnlock() {
  HOLDFAST_ABSEIL(void(Mutex*), "5Mutex12ReaderUnlockEv");
  Releasing(this);
  abseil(this);
}

bool Mutex::ReaderTryLock() {
  HOLDFAST_ABSEIL(bool(Mutex*), "5Mutex13ReaderTryLockEv");
  if (!abseil(this)) return false;
  Acquired(this);
  return true;
}

void Mutex::Await(const Condition& condition) {
  HOLDFAST_ABSEIL(void(Mutex*, const Condition&),
                  "5Mutex5AwaitERKNS0_9ConditionE");
  const OrderedCondition ordered(this, condition);
  Releasing(this);
  abseil(this, ordered.get());
  Acquired(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  HOLDFAST_ABSEIL(bool(Mutex*, const Condition&, Duration),
                  "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  const OrderedCondition ordered(this, condition);
  Releasing(this);
  const bool result = abseil(this, ordered.get(), timeout);
  Acquired(this);
  return result;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  HOLDFAST_ABSEIL(bool(Mutex*, const Condition&, Time),
                  "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  const OrderedCondition ordered(this, condition);
  Releasing(this);
  const bool result = abseil(this, ordered.get(), deadline);
  Acquired(this);
  return result;
}

void Mutex::LockWhen(const Condition& condition) {
  HOLDFAST_ABSEIL(void(Mutex*, const Condition&),
                  "5Mutex8LockWhenERKNS0_9ConditionE");
  const OrderedCondition ordered(this, condition);
  Releasing(this);
  abseil(this, ordered.get());
  Acquired(this);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  HOLDFAST_ABSEIL(
      bool(Mutex*, const Condition&, Duration),
      "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  const OrderedCondition ordered(this, condition);
  Releasing(this);
  const bool result = abseil(this, ordered.get(), timeout);
  Acquired(this);
  return result;
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  HOLDFAST_ABSEIL(bool(Mutex*, const Condition&, Time),
                  "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  const OrderedCondition ordered(this, condition);
  Releasing(this);
  const bool result = abseil(this, ordered.get(), deadline);
  Acquired(this);
  return result;
}

void Mutex::ReaderLockWhen(const Condition& condition) {
  HOLDFAST_ABSEIL(void(Mutex*, const Condition&),
                  "5Mutex14ReaderLockWhenERKNS0_9ConditionE");
  const OrderedCondition ordered(this, condition);
  Releasing(this);
  abseil(this, ordered.get());
  Acquired(this);
}

bool Mutex::ReaderLockWhenWithTimeout(const Condition& condition,
                                      Duration timeout) {
  HOLDFAST_ABSEIL(
      bool(Mutex*, const Condition&, Duration),
      "5Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  const OrderedCondition ordered(this, condition);
  const bool result = abseil(this, ordered.get(), timeout);
  Acquired(this);
  return result;
}

bool Mutex::ReaderLockWhenWithDeadline(const Condition& condition,
                                       Time deadline) {
  HOLDFAST_ABSEIL(
      bool(Mutex*, const Condition&, Time),
      "5Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  const OrderedCondition ordered(this, condition);
  const bool result = abseil(this, ordered.get(), deadline);
  Acquired(this);
  return result;
}

void CondVar::Wait(Mutex* mutex) {
  HOLDFAST_ABSEIL(void(CondVar*, Mutex*), "7CondVar4WaitEPNS0_5MutexE");
  Releasing(mutex);
  abseil(this, mutex);
  Acquired(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  HOLDFAST_ABSEIL(bool(CondVar*, Mutex*, Duration),
                  "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  Releasing(mutex);
  const bool result = abseil(this, mutex, timeout);
  Acquired(mutex);
  return result;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  HOLDFAST_ABSEIL(bool(CondVar*, Mutex*, Time),
                  "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  Releasing(mutex);
  const bool result = abseil(this, mutex, deadline);
  Acquired(mutex);
  return result;
}

// The waits below return without taking the lock if they need not wait.

void Notification::Notify() {
  HOLDFAST_ABSEIL(void(Notification*), "12Notification6NotifyEv");
  Releasing(this);
  // HasBeenNotified() is inline, so its atomic load is instrumented and
  // acquires what was released there; the flag follows the mutex.
  Releasing(reinterpret_cast<const char*>(this) + sizeof(Mutex));
  abseil(this);
}

void Notification::WaitForNotification() const {
  HOLDFAST_ABSEIL_CONST(void(const Notification*),
                        "12Notification19WaitForNotificationEv");
  abseil(this);
  Acquired(this);
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  HOLDFAST_ABSEIL_CONST(
      bool(const Notification*, Duration),
      "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
  const bool result = abseil(this, timeout);
  Acquired(this);
  return result;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  HOLDFAST_ABSEIL_CONST(
      bool(const Notification*, Time),
      "12Notification31WaitForNotificationWithDeadlineENS0_4TimeE");
  const bool result = abseil(this, deadline);
  Acquired(this);
  return result;
}

bool BlockingCounter::DecrementCount() {
  HOLDFAST_ABSEIL(bool(BlockingCounter*),
                  "15BlockingCounter14DecrementCountEv");
  Releasing(this);
  return abseil(this);
}

void BlockingCounter::Wait() {
  HOLDFAST_ABSEIL(void(BlockingCounter*), "15BlockingCounter4WaitEv");
  abseil(this);
  Acquired(this);
}

bool Barrier::Block() {
  HOLDFAST_ABSEIL(bool(Barrier*), "7Barrier5BlockEv");
  Releasing(this);
  const bool result = abseil(this);
  Acquired(this);
  return result;
}

ABSL_NAMESPACE_END
}  // namespace absl
