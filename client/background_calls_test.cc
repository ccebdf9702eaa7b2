// SPDX-License-Identifier: Apache-2.0
#include "client/background_calls.h"

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(BackgroundCallsTest, IsWaitedForInPortions) {
  BackgroundCalls calls;
  absl::Notification end;
  const auto call = calls.Start([&] {
    end.WaitForNotification();
    return absl::NotFoundError("x");
  });
  EXPECT_FALSE(call->WaitUntilDone(absl::InfinitePast()));
  EXPECT_FALSE(call->WaitUntilDone(absl::InfinitePast()));
  end.Notify();
  EXPECT_TRUE(call->WaitUntilDone(absl::InfiniteFuture()));
  EXPECT_TRUE(call->WaitUntilDone(absl::InfinitePast()));
  EXPECT_EQ(call->status(), absl::NotFoundError("x"));
}

TEST(BackgroundCallsTest, WaitsForThoseThatWereLetGoOf) {
  std::atomic<int> ended{0};
  absl::Notification end;
  {
    BackgroundCalls calls;
    for (int i = 0; i < 3; ++i) {
      calls.Start([&] {
        end.WaitForNotification();
        ++ended;
        return absl::OkStatus();
      });
    }
    end.Notify();
  }
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace holdfast
