// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 1000;

// Runs `body(0)` to `body(kThreads - 1)`, each in a thread of its own.
template <typename Body>
void InThreads(Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(AbslSynchronizationTest, MutexOrdersWriters) {
  absl::Mutex mutex;
  int count = 0;
  InThreads([&](int) {
    for (int i = 0; i < kRounds; ++i) {
      if (i % 2 == 0) {
        absl::MutexLock lock(&mutex);
        ++count;
      } else {
        while (!mutex.TryLock()) std::this_thread::yield();
        ++count;
        mutex.Unlock();
      }
    }
  });
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(AbslSynchronizationTest, MutexOrdersReadersAfterWriters) {
  absl::Mutex mutex;
  int value = 0;
  InThreads([&](int thread) {
    for (int i = 0; i < kRounds; ++i) {
      if (thread == 0) {
        absl::WriterMutexLock lock(&mutex);
        ++value;
      } else {
        absl::ReaderMutexLock lock(&mutex);
        EXPECT_LE(value, kRounds);
      }
    }
  });
  EXPECT_EQ(value, kRounds);
}

TEST(AbslSynchronizationTest, ConditionsAreOrdered) {
  absl::Mutex mutex;
  int turn = 0;
  InThreads([&](int thread) {
    auto my_turn = [&] { return turn % kThreads == thread; };
    for (int i = 0; i < kRounds / 10; ++i) {
      mutex.LockWhen(absl::Condition(&my_turn));
      ++turn;
      mutex.Await(absl::Condition(
          +[](int* t) { return *t > 0; }, &turn));
      mutex.AwaitWithTimeout(absl::Condition(
                                 +[](int* t) { return *t < 0; }, &turn),
                             absl::Microseconds(1));
      mutex.Unlock();
    }
  });
  EXPECT_EQ(turn, kThreads * (kRounds / 10));
}

TEST(AbslSynchronizationTest, CondVarIsOrdered) {
  absl::Mutex mutex;
  absl::CondVar changed;
  int turn = 0;
  InThreads([&](int thread) {
    for (int i = 0; i < kRounds / 10; ++i) {
      absl::MutexLock lock(&mutex);
      while (turn % kThreads != thread) {
        if (i % 2 == 0) {
          changed.Wait(&mutex);
        } else {
          changed.WaitWithTimeout(&mutex, absl::Seconds(10));
        }
      }
      ++turn;
      changed.SignalAll();
    }
  });
  EXPECT_EQ(turn, kThreads * (kRounds / 10));
}

TEST(AbslSynchronizationTest, PolledNotificationIsOrdered) {
  for (int round = 0; round < kRounds / 10; ++round) {
    absl::Notification ready;
    int value = 0;
    std::thread poller([&] {
      while (!ready.HasBeenNotified()) std::this_thread::yield();
      EXPECT_EQ(value, 7);
    });
    value = 7;
    ready.Notify();
    poller.join();
  }
}

TEST(AbslSynchronizationTest, NotificationCounterAndBarrierAreOrdered) {
  for (int round = 0; round < kRounds / 10; ++round) {
    absl::Notification ready;
    absl::BlockingCounter done(kThreads);
    auto* barrier = new absl::Barrier(kThreads);
    int value = 0;
    std::vector<int> seen(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, barrier, i] {
        ready.WaitForNotification();
        seen[i] = value;
        if (barrier->Block()) delete barrier;
        EXPECT_EQ(seen[(i + 1) % kThreads], 7);
        done.DecrementCount();
      });
    }
    value = 7;
    ready.Notify();
    done.Wait();
    value = 8;
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
