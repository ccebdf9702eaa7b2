// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/call_threads.h"

#include <grpcpp/alarm.h>

#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/rpc/deadline.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

// An operation that completes at once and calls `happen`.
class AtOnce final : public CallQueue::Event {
 public:
  AtOnce(CallQueue* queue, std::function<void()> happen)
      : happen_(std::move(happen)) {
    alarm_.Set(queue->get(), GrpcDeadline(absl::UnixEpoch()),
               static_cast<Event*>(this));
  }
  void Happen(bool) override { happen_(); }

 private:
  const std::function<void()> happen_;
  grpc::Alarm alarm_;
};

TEST(CallThreadsTest, AnotherJoinsWhereThereIsMuch) {
  CallQueue queue;
  constexpr int kEvents = 100;
  absl::Mutex mutex;
  std::set<std::thread::id> served;
  std::vector<std::unique_ptr<AtOnce>> events;
  // Once 50 have been served, a thread continues only when another has begun to
  // serve.
  int count = 0;
  absl::Notification joined;
  for (int i = 0; i < kEvents; ++i) {
    events.push_back(std::make_unique<AtOnce>(&queue, [&] {
      bool wait;
      {
        absl::MutexLock lock(&mutex);
        served.insert(std::this_thread::get_id());
        wait = ++count == kEvents / 2 && served.size() < 2;
        if (served.size() == 2 && !joined.HasBeenNotified()) joined.Notify();
      }
      if (wait) {
        EXPECT_TRUE(joined.WaitForNotificationWithTimeout(kPatience));
      }
    }));
  }
  *CallThreads::Start(&queue, 2, "test");
  EXPECT_EQ(count, kEvents);
}

// With N threads, N handlers that block leave one thread that polls; which
// thread that is does not matter.
class SlowHandlersTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, SlowHandlersTest, testing::Values(1, 2, 4));

TEST_P(SlowHandlersTest, OthersRunMeanwhile) {
  CallQueue queue;
  const auto threads = *CallThreads::Start(&queue, GetParam(), "test");
  for (int round = 0; round < 3; ++round) {
    absl::Notification leave;
    std::vector<std::unique_ptr<AtOnce>> events;
    std::vector<std::unique_ptr<absl::Notification>> left;
    for (int i = 0; i < GetParam(); ++i) {
      left.push_back(std::make_unique<absl::Notification>());
      events.push_back(std::make_unique<AtOnce>(&queue, [&, i] {
        EXPECT_TRUE(leave.WaitForNotificationWithTimeout(kPatience));
        left[i]->Notify();
      }));
    }
    for (int i = 0; i < 20; ++i) {
      absl::Notification happened;
      const AtOnce event(&queue, [&] { happened.Notify(); });
      ASSERT_TRUE(happened.WaitForNotificationWithTimeout(kPatience));
    }
    leave.Notify();
    for (const auto& notification : left) notification->WaitForNotification();
  }
}

}  // namespace
}  // namespace holdfast
