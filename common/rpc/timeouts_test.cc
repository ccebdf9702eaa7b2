// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/timeouts.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(TimeoutsTest, AFieldThatIsNotSetHasItsDefault) {
  // proto/training.proto: "Default 300", in seconds, of each.
  const proto::Timeouts none;
  EXPECT_EQ(StartTimeout(none), absl::Seconds(300));
  EXPECT_EQ(StepTimeout(none), absl::Seconds(300));
  EXPECT_EQ(RecoveryTimeout(none), absl::Seconds(300));
  EXPECT_EQ(DiskTimeout(none), absl::Seconds(300));
  // On a ps, flags replace some of the defaults.
  EXPECT_EQ(StartTimeout(none, absl::Seconds(1)), absl::Seconds(1));
  EXPECT_EQ(StepTimeout(none, absl::Seconds(2)), absl::Seconds(2));
  EXPECT_EQ(RecoveryTimeout(none, absl::Seconds(3)), absl::Seconds(3));
  EXPECT_EQ(DiskTimeout(none, absl::Seconds(4)), absl::Seconds(4));
}

TEST(TimeoutsTest, AFieldThatIsSetHoldsZeroAmongOthers) {
  proto::Timeouts timeouts;
  timeouts.set_start_seconds(10);
  timeouts.set_step_seconds(0.5);
  timeouts.set_recovery_seconds(0);
  timeouts.set_disk_seconds(40);
  EXPECT_EQ(StartTimeout(timeouts), absl::Seconds(10));
  EXPECT_EQ(StepTimeout(timeouts), absl::Milliseconds(500));
  EXPECT_EQ(RecoveryTimeout(timeouts), absl::ZeroDuration());
  EXPECT_EQ(DiskTimeout(timeouts), absl::Seconds(40));
  EXPECT_EQ(RecoveryTimeout(timeouts, absl::Seconds(3)), absl::ZeroDuration());
}

}  // namespace
}  // namespace holdfast
