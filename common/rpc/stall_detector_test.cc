// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/stall_detector.h"

#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

class StallDetectorTest : public testing::Test {
 protected:
  const std::unique_ptr<StallDetector> stall_ = *StallDetector::Create();
};

TEST_F(StallDetectorTest, TheOnlyThreadThatPollsIsInAHandler) {
  stall_->Join();
  stall_->Enter();
  EXPECT_TRUE(stall_->AwaitStall());
}

TEST_F(StallDetectorTest, AllThreadsThatPollAreInHandlers) {
  stall_->Join();
  stall_->Join();
  stall_->Enter();
  stall_->Enter();
  EXPECT_TRUE(stall_->AwaitStall());
}

TEST_F(StallDetectorTest, NoneWhileOneThreadPolls) {
  stall_->Join();
  stall_->Join();
  stall_->Enter();
  std::thread closer([this] { stall_->Close(); });
  EXPECT_FALSE(stall_->AwaitStall());
  closer.join();
}

// The timer that a short handler has armed does not hide a slow handler.
TEST_F(StallDetectorTest, AfterAShortHandler) {
  stall_->Join();
  stall_->Enter();
  stall_->Return();
  std::thread waiter([this] { EXPECT_TRUE(stall_->AwaitStall()); });
  stall_->Enter();
  waiter.join();
}

TEST_F(StallDetectorTest, OnceMoreWhenTheThreadThatJoinedIsSlowToo) {
  stall_->Join();
  for (int i = 0; i < 3; ++i) {
    stall_->Enter();
    EXPECT_TRUE(stall_->AwaitStall());
    stall_->Join();
  }
}

TEST_F(StallDetectorTest, TheLastThreadMayNotLeave) {
  stall_->Join();
  EXPECT_FALSE(stall_->LeaveToOthers());
  stall_->Join();
  stall_->Enter();
  // The other thread is in a handler.
  EXPECT_FALSE(stall_->LeaveToOthers());
  stall_->Return();
  EXPECT_TRUE(stall_->LeaveToOthers());
  EXPECT_FALSE(stall_->LeaveToOthers());
}

TEST_F(StallDetectorTest, CloseEndsAllWaits) {
  stall_->Close();
  EXPECT_FALSE(stall_->AwaitStall());
  stall_->Join();
  stall_->Enter();
  EXPECT_FALSE(stall_->AwaitStall());
}

}  // namespace
}  // namespace holdfast
