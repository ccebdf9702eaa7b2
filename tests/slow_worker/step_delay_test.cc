// SPDX-License-Identifier: Apache-2.0
#include "tests/slow_worker/step_delay.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(StepDelayTest, FillsTheRange) {
  constexpr absl::Duration kMax = absl::Milliseconds(20);
  constexpr int kSteps = 10000;
  absl::Duration sum;
  for (int step = 0; step < kSteps; ++step) {
    const absl::Duration delay = StepDelay(kMax, 1, 0, GlobalStep(step));
    EXPECT_GE(delay, absl::ZeroDuration());
    EXPECT_LT(delay, kMax);
    sum += delay;
  }
  // The mean of uniform numbers: 10 ms, with a standard deviation of
  // 20 ms / sqrt(12 * 10000) = 0.06 ms.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(sum / kSteps), 10, 0.3);
}

TEST(StepDelayTest, DependsOnSeedReplicaAndStep) {
  const auto delay = [](uint64_t seed, uint32_t replica, uint64_t step) {
    return StepDelay(absl::Seconds(1), seed, replica, GlobalStep(step));
  };
  EXPECT_EQ(delay(1, 2, 3), delay(1, 2, 3));
  EXPECT_NE(delay(1, 2, 3), delay(9, 2, 3));
  EXPECT_NE(delay(1, 2, 3), delay(1, 9, 3));
  EXPECT_NE(delay(1, 2, 3), delay(1, 2, 9));
  EXPECT_NE(delay(1, 2, 3), delay(uint64_t{1} << 32 | 1, 2, 3));
}

}  // namespace
}  // namespace holdfast
