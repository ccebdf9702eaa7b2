// SPDX-License-Identifier: Apache-2.0
#include "common/base/strand.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(StrandTest, RunsInOrderOnOneThread) {
  std::vector<int> order;
  std::thread::id thread;
  {
    Strand strand("test");
    for (int i = 0; i < 100; ++i) {
      strand.Post([&, i] {
        order.push_back(i);
        if (i == 0) thread = std::this_thread::get_id();
        EXPECT_EQ(std::this_thread::get_id(), thread);
      });
    }
  }
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(StrandTest, ATaskMayPost) {
  Strand strand("test");
  absl::Notification done;
  strand.Post([&] { strand.Post([&] { done.Notify(); }); });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(10)));
}

TEST(StrandTest, ManyMayPostAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;
  int count = 0;
  {
    Strand strand("test");
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) strand.Post([&] { ++count; });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(count, kThreads * kEach);
}

// A thread that runs a light task also runs the light tasks that arrive
// meanwhile, but not those that follow a heavy one.
TEST(StrandTest, WhoRunsLightTasks) {
  Strand strand("test");
  const std::thread::id me = std::this_thread::get_id();
  std::vector<std::pair<std::string, bool>> ran;
  absl::Notification done;
  strand.RunOrPost([&] {
    const auto note = [&](const char* name) {
      return [&, name] {
        ran.emplace_back(name, std::this_thread::get_id() == me);
      };
    };
    strand.RunOrPost(note("light"));
    strand.Post(note("heavy"));
    strand.RunOrPost(note("after"));
    strand.Post([&] { done.Notify(); });
    note("first")();
  });
  done.WaitForNotification();
  EXPECT_THAT(ran, testing::ElementsAre(testing::Pair("first", true),
                                        testing::Pair("light", true),
                                        testing::Pair("heavy", false),
                                        testing::Pair("after", false)));
}

TEST(StrandTest, StopRunsWhatWasPostedAndDropsWhatIsPostedLater) {
  Strand strand("test");
  absl::Notification release;
  int ran = 0;
  strand.Post([&] { release.WaitForNotification(); });
  strand.Post([&] { ++ran; });
  std::thread stopper([&] { strand.Stop(); });
  release.Notify();
  stopper.join();
  EXPECT_EQ(ran, 1);

  auto held = std::make_shared<int>();
  strand.Post([&, held] { ++ran; });
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(held.use_count(), 1) << "the dropped task is still held";
  strand.Stop();
}

TEST(StrandTest, WhatATaskHoldsIsLetGoOnceItHasRun) {
  Strand strand("test");
  auto held = std::make_shared<int>();
  absl::Notification next;
  strand.Post([held] {});
  strand.Post([&next, &held] {
    EXPECT_EQ(held.use_count(), 1);
    next.Notify();
  });
  next.WaitForNotification();
}

TEST(StrandTest, Ticks) {
  Strand strand("test");
  absl::BlockingCounter ticks(3);
  int left = 3;
  strand.TickEvery(absl::Milliseconds(1), [&] {
    if (left-- > 0) ticks.DecrementCount();
  });
  ticks.Wait();
  strand.Stop();
}

TEST(StrandTest, TicksWhileItIsBusy) {
  Strand strand("test");
  absl::Notification ticked;
  bool stop = false;
  // A chain of tasks that never leaves the queue empty.
  std::function<void()> again = [&] {
    if (!stop) strand.Post(again);
  };
  strand.Post(again);
  strand.TickEvery(absl::Milliseconds(1), [&] {
    if (!stop) ticked.Notify();
    stop = true;
  });
  EXPECT_TRUE(ticked.WaitForNotificationWithTimeout(absl::Seconds(10)));
  strand.Stop();
}

}  // namespace
}  // namespace holdfast
