// SPDX-License-Identifier: Apache-2.0

// Watches, at the system calls, how the threads of a program that uses Abseil
// and gRPC wait: never for a date.

#include <dlfcn.h>
#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/deadline.h"
#include "gtest/gtest.h"

namespace {

// The number of futex waits with a timeout, by the timeout's clock.
std::atomic<int> waits_for_a_date{0};
std::atomic<int> steady_waits{0};

}  // namespace

// Overrides the C library's function.
extern "C" long syscall(long number, ...) {
  static auto* const next =
      reinterpret_cast<decltype(&syscall)>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long args[6];
  for (long& arg : args) arg = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && (args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET &&
      args[3] != 0) {
    const bool is_date = (args[1] & FUTEX_CLOCK_REALTIME) != 0;
    ++(is_date ? waits_for_a_date : steady_waits);
  }
  return next(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

namespace holdfast {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(5);
constexpr absl::Duration kLong = absl::Seconds(30);

class SteadyWaitsTest : public ::testing::Test {
 protected:
  ~SteadyWaitsTest() override {
    EXPECT_EQ(waits_for_a_date, 0);
    EXPECT_GT(steady_waits - before_, 0);
  }

  const int before_ = steady_waits;
  absl::Mutex mutex_;
};

TEST_F(SteadyWaitsTest, AConditionThatDoesNotBecomeTrue) {
  bool never = false;
  const absl::Time begun = SteadyNow();
  absl::MutexLock lock(&mutex_);
  EXPECT_FALSE(mutex_.AwaitWithTimeout(absl::Condition(&never), kShort));
  EXPECT_GE(SteadyNow() - begun, kShort);
}

TEST_F(SteadyWaitsTest, AConditionThatBecomesTrue) {
  bool done = false;
  std::thread other;
  {
    absl::MutexLock lock(&mutex_);
    other = std::thread([&] {
      absl::MutexLock lock(&mutex_);
      done = true;
    });
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&done), kLong));
  }
  other.join();
}

TEST_F(SteadyWaitsTest, AConditionVariable) {
  absl::CondVar changed;
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(changed.WaitWithTimeout(&mutex_, kShort));
}

TEST_F(SteadyWaitsTest, ANotification) {
  absl::Notification never;
  EXPECT_FALSE(never.WaitForNotificationWithTimeout(kShort));
}

TEST_F(SteadyWaitsTest, NoWaitAtAll) {
  bool never = false;
  absl::MutexLock lock(&mutex_);
  EXPECT_FALSE(mutex_.AwaitWithTimeout(absl::Condition(&never), -kLong));
  EXPECT_FALSE(mutex_.AwaitWithTimeout(absl::Condition(&never), kShort));
}

// One of gRPC's threads waits for the next timer.
TEST_F(SteadyWaitsTest, AnAlarmOfGrpc) {
  grpc::CompletionQueue queue;
  grpc::Alarm alarm;
  alarm.Set(&queue, GrpcDeadline(SteadyNow() + kShort), &queue);
  void* tag;
  bool ok;
  ASSERT_EQ(queue.AsyncNext(&tag, &ok, GrpcDeadline(SteadyNow() + kLong)),
            grpc::CompletionQueue::GOT_EVENT);
  EXPECT_TRUE(ok);
  queue.Shutdown();
  EXPECT_FALSE(queue.Next(&tag, &ok));
}

}  // namespace
}  // namespace holdfast
