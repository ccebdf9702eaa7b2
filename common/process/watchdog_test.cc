// SPDX-License-Identifier: Apache-2.0
#include "common/process/watchdog.h"

#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(WatchdogTest, ReportsAWaitAtItsBoundAndEachTimeThatItHasDoubled) {
  std::vector<std::string> reports;
  Watchdog watchdog([&](const std::string& text) { reports.push_back(text); });
  absl::Duration lasted;
  watchdog.Add(absl::Seconds(10), [&] {
    return Watchdog::Wait{"the disk", lasted};
  });
  for (int seconds = 0; seconds <= 45; ++seconds) {
    lasted = absl::Seconds(seconds);
    watchdog.Check();
  }
  EXPECT_EQ(reports,
            (std::vector<std::string>{"waiting for the disk, for 10s so far",
                                      "waiting for the disk, for 20s so far",
                                      "waiting for the disk, for 40s so far"}));
}

TEST(WatchdogTest, BeginsAnewWithTheNextWait) {
  int reports = 0;
  Watchdog watchdog([&](const std::string&) { ++reports; });
  std::optional<Watchdog::Wait> wait;
  watchdog.Add(absl::Seconds(10), [&] { return wait; });
  wait = Watchdog::Wait{"the disk", absl::Seconds(30)};
  watchdog.Check();
  watchdog.Check();
  EXPECT_EQ(reports, 1);
  wait.reset();
  watchdog.Check();
  wait = Watchdog::Wait{"the disk", absl::Seconds(10)};
  watchdog.Check();
  EXPECT_EQ(reports, 2);
}

TEST(WatchdogTest, LooksByItself) {
  absl::Notification reported;
  Watchdog watchdog([&](const std::string&) {
    if (!reported.HasBeenNotified()) reported.Notify();
  });
  watchdog.Add(absl::Seconds(1), [] {
    return Watchdog::Wait{"ever", absl::Hours(1)};
  });
  watchdog.Start(absl::Milliseconds(1));
  EXPECT_TRUE(reported.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

}  // namespace
}  // namespace holdfast
