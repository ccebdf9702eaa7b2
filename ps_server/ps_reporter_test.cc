// SPDX-License-Identifier: Apache-2.0
#include "ps_server/ps_reporter.h"

#include <optional>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(PsReporterTest, TellsWhatTheShardAndItsNeighborsCount) {
  PsReporter reporter;
  ShardFigures shard;
  shard.updates = 7;
  reporter.SetShard(shard);
  NeighborFigures neighbors;
  neighbors.links = 2;
  neighbors.lent_now = 30;
  neighbors.borrowed_now = 1;
  neighbors.lent = 50;
  neighbors.borrowed = 60;
  const proto::PsReport report = reporter.Report(neighbors);
  EXPECT_EQ(report.updates(), 7u);
  EXPECT_GT(report.memory().resident(), 0u);
  EXPECT_EQ(report.shared_memory().links(), 2u);
  EXPECT_EQ(report.shared_memory().lent_bytes(), 30u);
  EXPECT_EQ(report.shared_memory().sent_bytes(), 50u);
  EXPECT_EQ(report.shared_memory().received_bytes(), 60u);
}

TEST(PsReporterTest, APsThatSharesNoMemorySaysNothingOfIt) {
  EXPECT_FALSE(PsReporter().Report(std::nullopt).has_shared_memory());
}

}  // namespace
}  // namespace holdfast
