// SPDX-License-Identifier: Apache-2.0

// Jobs with embedding tables that are killed: on a single ps, and resumed on a
// different number of ps.

#include <signal.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(60);

class TablesTest : public ::testing::TestWithParam<JobKind> {
 protected:
  TablesTest()
      : folder_(FreshFolder()), options_(SmallCluster(GetParam(), folder_)) {}

  static void AwaitStep(TaskCluster* cluster, uint64_t step) {
    ASSERT_TRUE(cluster->AdvanceUntil(
        [&] { return cluster->status().global_step() >= step; }, kLimit))
        << cluster->Describe();
  }

  void ExpectTheRightEnd(TaskCluster* cluster) {
    const absl::Status ended = cluster->AwaitEnd(kLimit);
    ASSERT_TRUE(ended.ok()) << ended;
    absl::StatusOr<std::string> digest = "";
    if (GetParam() == JobKind::kTables) {
      // With two ps.
      digest = DigestInPeace(GetParam(), folder_ + "/peace");
    }
    ASSERT_TRUE(digest.ok()) << digest.status();
    const absl::Status right = CheckEnd(GetParam(), *cluster, *digest);
    EXPECT_TRUE(right.ok()) << right << cluster->Describe();
  }

  const std::string folder_;
  TaskCluster::Options options_;
};

INSTANTIATE_TEST_SUITE_P(Jobs, TablesTest,
                         ::testing::Values(JobKind::kTables,
                                           JobKind::kTablesByTicket,
                                           JobKind::kTablesBounded),
                         [](const auto& info) {
                           switch (info.param) {
                             case JobKind::kTables:
                               return "ByStep";
                             case JobKind::kTablesByTicket:
                               return "ByTicket";
                             default:
                               return "Bounded";
                           }
                         });

// Rows travel in exchanges, and the coordinator dies with all rows.
TEST_P(TablesTest, TheOnlyPsIsKilled) {
  options_.num_ps = 1;
  TaskCluster cluster(options_);
  cluster.StartAll();
  AwaitStep(&cluster, 25);
  cluster.Signal("ps-0", SIGKILL);
  AwaitStep(&cluster, 50);
  cluster.Signal("ps-0", SIGKILL);
  cluster.Signal("worker-1", SIGKILL);
  ExpectTheRightEnd(&cluster);
}

TEST_P(TablesTest, GoesOnWithAnotherNumberOfPs) {
  uint64_t durable = 0;
  for (const int num_ps : {2, 4, 1}) {
    options_.num_ps = num_ps;
    TaskCluster cluster(options_);
    cluster.StartAll();
    if (num_ps == 1) return ExpectTheRightEnd(&cluster);
    // Steps after a checkpoint are lost. The job has few steps: under load,
    // polling may see only one of several.
    ASSERT_TRUE(cluster.AdvanceUntil(
        [&] {
          const proto::GetStatusResponse& status = cluster.status();
          return status.durable_step() > durable &&
                 status.global_step() > status.durable_step();
        },
        kLimit))
        << cluster.Describe();
    durable = cluster.status().durable_step();
  }
}

}  // namespace
}  // namespace holdfast
