// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/live_workers.h"

#include "common/job/task_id.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

const TaskId kChief = {kChiefJob, 0};
const TaskId kWorker = {kWorkerJob, 0};

TEST(LiveWorkersTest, CountsEachWorkerOnce) {
  LiveWorkers live;
  EXPECT_EQ(live.size(), 0u);
  live.Set(kChief, 0);
  live.Set(kWorker, 0);
  live.Set(kWorker, 1);
  EXPECT_EQ(live.size(), 2u);
  live.Remove(kWorker);
  live.Remove(kWorker);
  EXPECT_EQ(live.size(), 1u);
}

TEST(LiveWorkersTest, FollowsTheSlowest) {
  LiveWorkers live;
  EXPECT_EQ(live.slowest(), 0u);
  live.Set(kChief, 3);
  live.Set(kWorker, 3);
  EXPECT_EQ(live.slowest(), 3u);
  live.Set(kChief, 5);
  EXPECT_EQ(live.slowest(), 3u);
  live.Set(kWorker, 7);
  EXPECT_EQ(live.slowest(), 5u);
  live.Remove(kChief);
  EXPECT_EQ(live.slowest(), 7u);
  live.Set(kChief, 0);
  EXPECT_EQ(live.slowest(), 0u);
  live.Remove(kChief);
  live.Remove(kWorker);
  EXPECT_EQ(live.slowest(), 0u);
}

}  // namespace
}  // namespace holdfast
