// SPDX-License-Identifier: Apache-2.0
#include "common/base/thread_pool.h"

#include <atomic>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(ThreadPoolTest, CallsOnceForEach) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads, "test");
    EXPECT_EQ(pool.threads(), threads);
    for (const size_t count : {0, 1, 2, 3, 100, 1000}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::atomic<int>> calls(count);
        pool.ParallelFor(count, [&](size_t i) { ++calls[i]; });
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(calls[i], 1) << i;
      }
    }
  }
}

// Each call waits for as many others as there are threads.
TEST(ThreadPoolTest, AllThreadsTakePart) {
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads, "test");
    for (int round = 0; round < 20; ++round) {
      auto* const barrier = new absl::Barrier(threads);
      pool.ParallelFor(threads, [&](size_t) {
        if (barrier->Block()) delete barrier;
      });
    }
  }
}

TEST(ThreadPoolTest, ReturnsWhenAllCallsHave) {
  ThreadPool pool(2, "test");
  absl::Notification other_begun;
  std::vector<int> done(2, 0);
  const auto caller = std::this_thread::get_id();
  // The caller finishes its part first, and finds no work left.
  pool.ParallelFor(2, [&](size_t i) {
    if (std::this_thread::get_id() == caller) {
      other_begun.WaitForNotification();
    } else {
      other_begun.Notify();
      for (int k = 0; k < 1000; ++k) std::this_thread::yield();
    }
    done[i] = 1;
  });
  EXPECT_EQ(done, std::vector<int>({1, 1}));
}

TEST(ThreadPoolTest, OneThreadIsTheCallers) {
  ThreadPool pool(1, "test");
  const auto caller = std::this_thread::get_id();
  pool.ParallelFor(
      10, [&](size_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

}  // namespace
}  // namespace holdfast
