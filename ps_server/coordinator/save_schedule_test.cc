// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/save_schedule.h"

#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

const absl::Time kBegin = absl::UnixEpoch() + absl::Hours(1);

proto::Checkpoints EverySteps(uint64_t steps) {
  proto::Checkpoints when;
  when.set_every_steps(steps);
  return when;
}

proto::Checkpoints EverySeconds(double seconds) {
  proto::Checkpoints when;
  when.set_every_seconds(seconds);
  return when;
}

// The steps, up to `steps` at one a second, at which checkpoints begin that
// take `cost` each.
std::vector<uint64_t> BegunAt(SaveSchedule* schedule, uint64_t from,
                              uint64_t steps, absl::Duration cost) {
  std::vector<uint64_t> begun;
  bool saving = false;
  for (uint64_t step = from; step <= steps; ++step) {
    const absl::Time now = kBegin + absl::Seconds(step);
    if (saving && now - schedule->begun() >= cost) {
      schedule->OnSaved(now);
      saving = false;
    }
    if (saving || !schedule->IsDue(step, now)) continue;
    begun.push_back(step);
    schedule->OnBegun(step, now);
    saving = true;
  }
  return begun;
}

TEST(SaveScheduleTest, AtMultiplesOnly) {
  SaveSchedule schedule;
  schedule.Begin(EverySteps(5), /*asynchronous=*/false, 0, kBegin);
  EXPECT_THAT(BegunAt(&schedule, 1, 17, absl::Seconds(2)),
              ElementsAre(5, 10, 15));
}

// The checkpoint of step 5 takes until step 11, which is not a multiple.
TEST(SaveScheduleTest, AMultipleDuringASlowSaveIsSkipped) {
  SaveSchedule schedule;
  schedule.Begin(EverySteps(5), /*asynchronous=*/false, 0, kBegin);
  EXPECT_THAT(BegunAt(&schedule, 1, 36, absl::Seconds(6)),
              ElementsAre(5, 15, 25, 35));
}

TEST(SaveScheduleTest, AsynchronousPushesMayPassAMultiple) {
  SaveSchedule schedule;
  schedule.Begin(EverySteps(5), /*asynchronous=*/true, 0, kBegin);
  EXPECT_FALSE(schedule.IsDue(4, kBegin));
  EXPECT_TRUE(schedule.IsDue(7, kBegin));
  schedule.OnBegun(7, kBegin);
  schedule.OnSaved(kBegin);
  EXPECT_FALSE(schedule.IsDue(9, kBegin));
  EXPECT_TRUE(schedule.IsDue(13, kBegin));
}

TEST(SaveScheduleTest, StepsAloneSetNoTime) {
  SaveSchedule schedule;
  schedule.Begin(EverySteps(1000), /*asynchronous=*/false, 0, kBegin);
  EXPECT_FALSE(schedule.IsDue(999, kBegin + absl::Hours(100)));
}

TEST(SaveScheduleTest, BothCount) {
  proto::Checkpoints when = EverySteps(1000);
  when.set_every_seconds(30);
  SaveSchedule schedule;
  schedule.Begin(when, /*asynchronous=*/false, 0, kBegin);
  EXPECT_TRUE(schedule.IsDue(1000, kBegin));
  EXPECT_FALSE(schedule.IsDue(7, kBegin + absl::Seconds(29)));
  EXPECT_TRUE(schedule.IsDue(7, kBegin + absl::Seconds(30)));
}

TEST(SaveScheduleTest, AFixedTimeStaysWhateverASaveCosts) {
  SaveSchedule schedule;
  schedule.Begin(EverySeconds(30), /*asynchronous=*/false, 0, kBegin);
  schedule.OnBegun(1, kBegin);
  schedule.OnSaved(kBegin + absl::Seconds(20));
  EXPECT_EQ(schedule.every(), absl::Seconds(30));
  schedule.Begin(EverySeconds(0), /*asynchronous=*/false, 0, kBegin);
  EXPECT_FALSE(schedule.IsDue(7, kBegin + absl::Hours(100)));
}

TEST(SaveScheduleTest, ByDefaultEveryMinuteWhereSavesAreCheap) {
  SaveSchedule schedule;
  schedule.Begin({}, /*asynchronous=*/false, 0, kBegin);
  EXPECT_THAT(BegunAt(&schedule, 1, 200, absl::Seconds(1)),
              ElementsAre(60, 120, 180));
}

// 6 s are 2 % of 300 s.
TEST(SaveScheduleTest, ByDefaultASaveTakesTwoPercentOfTheTime) {
  SaveSchedule schedule;
  schedule.Begin({}, /*asynchronous=*/false, 0, kBegin);
  EXPECT_THAT(BegunAt(&schedule, 1, 1000, absl::Seconds(6)),
              ElementsAre(60, 360, 660, 960));
  // The next generation knows the cost, too.
  schedule.Begin({}, /*asynchronous=*/false, 960, kBegin + absl::Seconds(1000));
  EXPECT_EQ(schedule.every(), absl::Seconds(300));
}

TEST(SaveScheduleTest, NothingIsSavedTwice) {
  SaveSchedule schedule;
  schedule.Begin({}, /*asynchronous=*/false, 7, kBegin);
  EXPECT_FALSE(schedule.IsDue(7, kBegin + absl::Hours(1)));
}

TEST(SaveScheduleTest, OneThatFailedIsMadeUpForAtOnce) {
  SaveSchedule schedule;
  schedule.Begin(EverySteps(1000), /*asynchronous=*/false, 0, kBegin);
  schedule.OnBegun(1000, kBegin);
  EXPECT_FALSE(schedule.IsDue(1003, kBegin));
  schedule.OnFailed(kBegin);
  EXPECT_TRUE(schedule.IsDue(1003, kBegin));
  schedule.OnBegun(1003, kBegin);
  schedule.OnSaved(kBegin);
  EXPECT_FALSE(schedule.IsDue(1999, kBegin));
  EXPECT_TRUE(schedule.IsDue(2000, kBegin));
}

}  // namespace
}  // namespace holdfast
