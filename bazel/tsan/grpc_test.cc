// SPDX-License-Identifier: Apache-2.0
#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 100;

// In the past, because an alarm that is not due at once passes through gRPC's
// locks.
const std::chrono::system_clock::time_point kAtOnce;

// The thread that takes an alarm's tag out of the queue reads and changes data
// written before the alarm was set. That thread comes late, so that gRPC takes
// no lock.
TEST(GrpcTest, AnAlarmIsOrderedBeforeItsTag) {
  grpc::CompletionQueue queue;
  std::atomic<bool> all_set{false};
  std::thread taker([&] {
    while (!all_set.load(std::memory_order_relaxed)) std::this_thread::yield();
    void* tag;
    bool ok;
    while (queue.Next(&tag, &ok)) ++*static_cast<int*>(tag);
  });
  std::vector<int> values(kRounds);
  std::vector<grpc::Alarm> alarms(kRounds);
  for (int i = 0; i < kRounds; ++i) {
    values[i] = i;
    alarms[i].Set(&queue, kAtOnce, &values[i]);
  }
  all_set.store(true, std::memory_order_relaxed);
  queue.Shutdown();
  taker.join();
  for (int i = 0; i < kRounds; ++i) EXPECT_EQ(values[i], i + 1);
}

}  // namespace
