// SPDX-License-Identifier: Apache-2.0
#include "cli/restarts.h"

#include "common/process/daemon.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(WorthRestartingTest, Table) {
  EXPECT_TRUE(WorthRestarting({.signal = 9}));
  EXPECT_TRUE(WorthRestarting({.signal = 11}));
  EXPECT_TRUE(WorthRestarting({.code = kExitRestart}));
  EXPECT_TRUE(WorthRestarting({.code = 3}));
  EXPECT_FALSE(WorthRestarting({.code = kExitDone}));
  EXPECT_FALSE(WorthRestarting({.code = kExitFailed}));
  EXPECT_FALSE(WorthRestarting({.code = kExitUsage}));
}

TEST(RestartsTest, PauseDoublesUpToALimit) {
  Restarts restarts({.most = 7});
  const absl::Time now = absl::UnixEpoch();
  for (const double seconds : {0.5, 1., 2., 4., 8., 10., 10.}) {
    EXPECT_EQ(restarts.Next(now, now), now + absl::Seconds(seconds));
  }
  EXPECT_EQ(restarts.count(), 7);
  EXPECT_EQ(restarts.Next(now, now), std::nullopt);
  EXPECT_EQ(restarts.count(), 7);
}

TEST(RestartsTest, PauseBeginsAnewAfterALongRun) {
  Restarts restarts({.most = 4});
  const absl::Time now = absl::UnixEpoch();
  const absl::Time later = now + absl::Seconds(60);
  EXPECT_EQ(restarts.Next(now, now), now + absl::Seconds(0.5));
  EXPECT_EQ(restarts.Next(now, now), now + absl::Seconds(1));
  EXPECT_EQ(restarts.Next(now, later), later + absl::Seconds(0.5));
  EXPECT_EQ(restarts.Next(now, later - absl::Nanoseconds(1)),
            later - absl::Nanoseconds(1) + absl::Seconds(1));
  // The count is not reset.
  EXPECT_EQ(restarts.Next(now, later), std::nullopt);
}

}  // namespace
}  // namespace holdfast
