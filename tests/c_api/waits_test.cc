// SPDX-License-Identifier: Apache-2.0

// Waits of the C API, in portions, and what ends them; with real ps servers
// over loopback.

#include <cstddef>
#include <cstdint>
#include <thread>

#include "client/c_api/holdfast.h"
#include "common/job/cluster_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"
#include "tests/c_api/calls.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

TEST_F(CApiClusterTest, WaitsInPortions) {
  Start(/*num_ps=*/1, /*num_workers=*/2);
  // The other worker is missing, so the first step stays open.
  holdfast_cluster* const cluster = Connect(Worker(0));
  // There is no declaration yet.
  holdfast_cluster* const reader =
      Connect(Options(cluster_->spec(), "client", 0));
  EXPECT_EQ(Call(holdfast_await_variables, reader, int64_t{1}).kind,
            HOLDFAST_TIMED_OUT);
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(5).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, reader, int64_t{-1}));
  holdfast_close(reader);
  holdfast_cluster* const other = Connect(Worker(1));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  for (int i = 0; i < 3; ++i) {
    const Result result = Call(holdfast_loop_next, loop, int64_t{1}, &turn);
    EXPECT_EQ(result.kind, HOLDFAST_TIMED_OUT) << result.message;
  }
  holdfast_close(other);
  holdfast_close(cluster);
  holdfast_loop_free(loop);
}

TEST(CApiWaitTest, ConnectingIsWaitedForInPortionsAndClosed) {
  const ClusterSpec spec =
      *ClusterSpec::FromHosts("127.0.0.1:1", "127.0.0.1:2", "");
  const Options options(spec, "worker", 0);
  const auto list = options.Get();
  holdfast_cluster* cluster = nullptr;
  ASSERT_OK(Call(holdfast_connect, list.data(), list.size(), &cluster));
  EXPECT_EQ(Call(holdfast_await_connected, cluster, int64_t{0}).kind,
            HOLDFAST_TIMED_OUT);
  char* text = nullptr;
  EXPECT_THAT(Call(holdfast_get_status, cluster, int64_t{-1}, &text).message,
              HasSubstr("call holdfast_await_connected first"));
  holdfast_close(cluster);
}

TEST(CApiWaitTest, WhoIsOutOfReachIsNamed) {
  const ClusterSpec spec =
      *ClusterSpec::FromHosts("127.0.0.1:1", "127.0.0.1:2", "");
  Options options(spec, "client", 0);
  const auto list = options.Set("fail_fast", "true").Get();
  holdfast_cluster* cluster = nullptr;
  ASSERT_OK(Call(holdfast_connect, list.data(), list.size(), &cluster));
  const Result result = Call(holdfast_await_connected, cluster, int64_t{-1});
  EXPECT_EQ(result.kind, HOLDFAST_UNAVAILABLE);
  EXPECT_EQ(result.task, "/job:ps/task:0");
  EXPECT_EQ(result.exit_code, 138);
  holdfast_close(cluster);
}

TEST_F(CApiClusterTest, WhatIsClosedEndsItsWaits) {
  Start(/*num_ps=*/1, /*num_workers=*/2);
  holdfast_cluster* const cluster = Connect(Worker(0));
  holdfast_cluster* const other = Connect(Worker(1));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(5).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  std::thread waiter([&] {
    holdfast_turn next;
    EXPECT_EQ(Call(holdfast_loop_next, loop, int64_t{-1}, &next).kind,
              HOLDFAST_BAD_HANDLE);
  });
  holdfast_close(cluster);
  waiter.join();
  EXPECT_STREQ(CallAllWith(cluster, nullptr, nullptr), nullptr);
  holdfast_loop_free(loop);
  EXPECT_STREQ(CallAllWith(nullptr, loop, nullptr), nullptr);
  // A handle of another type is refused.
  EXPECT_STREQ(CallAllWith(nullptr, reinterpret_cast<holdfast_loop*>(other),
                           reinterpret_cast<holdfast_values*>(other)),
               nullptr);
  holdfast_close(other);
}

TEST_F(CApiClusterTest, AFreedLoopEndsItsWaits) {
  Start(/*num_ps=*/1, /*num_workers=*/2);
  holdfast_cluster* const cluster = Connect(Worker(0));
  holdfast_cluster* const other = Connect(Worker(1));
  ASSERT_OK(Call(holdfast_declare, cluster, Synchronous(5).c_str(), nullptr,
                 size_t{0}, int64_t{-1}));
  ASSERT_OK(Call(holdfast_await_variables, cluster, int64_t{-1}));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  std::thread waiter([&] {
    holdfast_turn next;
    EXPECT_EQ(Call(holdfast_loop_next, loop, int64_t{-1}, &next).kind,
              HOLDFAST_BAD_HANDLE);
  });
  holdfast_loop_free(loop);
  waiter.join();
  // Another loop may be started.
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_loop_free(loop);
  holdfast_close(other);
  holdfast_close(cluster);
}

}  // namespace
}  // namespace holdfast
