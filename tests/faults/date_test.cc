// SPDX-License-Identifier: Apache-2.0

// Jobs on machines whose date is set while they run: the jobs must be
// unaffected.

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(60);
constexpr int64_t kHour = 3600;

class DateTest : public ::testing::Test {
 protected:
  // The digest of an undisturbed job, the same for all tests.
  static void SetUpTestSuite() {
    const auto digest = DigestInPeace(
        JobKind::kSynchronous, absl::StrCat(::testing::TempDir(), "/peace"));
    ASSERT_TRUE(digest.ok()) << digest.status();
    digest_ = *digest;
  }

  DateTest()
      : folder_(FreshFolder()),
        options_(SmallCluster(JobKind::kSynchronous, folder_)) {
    SetDate(0);
    options_.launcher = [this](const std::string&) {
      return std::vector<std::string>{
          "env", "LD_PRELOAD=tests/faults/libshifted_date.so",
          "SHIFTED_DATE=" + shift_file()};
    };
  }

  // Sets the date of all tasks to the machine's plus `shift` seconds.
  void SetDate(int64_t shift) {
    std::fstream file(shift_file(),
                      std::ios::binary | std::ios::in | std::ios::out);
    if (!file) file.open(shift_file(), std::ios::binary | std::ios::out);
    file.write(reinterpret_cast<const char*>(&shift), sizeof(shift));
    ASSERT_TRUE(file.flush());
  }

  void AwaitStep(TaskCluster* cluster, uint64_t step) {
    ASSERT_TRUE(cluster->AdvanceUntil(
        [&] { return cluster->failed() || cluster->max_step() >= step; },
        kLimit))
        << cluster->Describe();
  }

  void ExpectTheRightEnd(TaskCluster* cluster) {
    const absl::Status ended = cluster->AwaitEnd(kLimit);
    EXPECT_TRUE(ended.ok()) << ended;
    const absl::Status right =
        CheckEnd(JobKind::kSynchronous, *cluster, digest_);
    EXPECT_TRUE(right.ok()) << right << cluster->Describe();
    // No task was declared lost.
    EXPECT_EQ(cluster->status().generation(), 1) << cluster->Describe();
  }

  static std::string digest_;
  const std::string folder_;
  TaskCluster::Options options_;

 private:
  std::string shift_file() const { return folder_ + "/shift"; }
};

std::string DateTest::digest_;

TEST_F(DateTest, SetBackAndForward) {
  TaskCluster cluster(options_);
  cluster.StartAll();
  AwaitStep(&cluster, 10);
  SetDate(-kHour);
  AwaitStep(&cluster, 30);
  // Two hours from the tasks' current date.
  SetDate(kHour);
  ExpectTheRightEnd(&cluster);
  for (const std::string& name : cluster.names()) {
    EXPECT_EQ(cluster.starts(name), 1) << name << cluster.Describe();
  }
}

// Leases and timeouts follow elapsed time, whatever the date is.
TEST_F(DateTest, AWorkerThatDiesAfterItWasSetBackLosesItsLease) {
  TaskCluster cluster(options_);
  cluster.StartAll();
  AwaitStep(&cluster, 10);
  SetDate(-kHour);
  AwaitStep(&cluster, 15);
  cluster.Signal("worker-1", SIGKILL);
  ExpectTheRightEnd(&cluster);
  EXPECT_EQ(cluster.starts("worker-1"), 2) << cluster.Describe();
}

}  // namespace
}  // namespace holdfast
