// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/disk_watch.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

absl::Time At(int second) { return absl::UnixEpoch() + absl::Seconds(second); }

proto::DiskProgress Bytes(uint64_t done, uint64_t total) {
  proto::DiskProgress progress;
  progress.set_bytes_done(done);
  progress.set_bytes_total(total);
  return progress;
}

TEST(DiskWatchTest, TheSlowestCounts) {
  DiskWatch watch;
  EXPECT_FALSE(watch.active());
  watch.Begin(2, At(0));
  EXPECT_TRUE(watch.active());
  EXPECT_EQ(watch.standing_since(), At(0));
  watch.OnProgress(0, Bytes(5, 10), At(3));
  EXPECT_EQ(watch.standing_since(), At(0)) << "ps 1 has told of nothing";
  watch.OnProgress(1, Bytes(1, 10), At(4));
  EXPECT_EQ(watch.standing_since(), At(3));
  watch.OnProgress(0, Bytes(5, 10), At(5));
  EXPECT_EQ(watch.standing_since(), At(3));
  watch.OnProgress(0, Bytes(6, 10), At(6));
  EXPECT_EQ(watch.standing_since(), At(4));
}

TEST(DiskWatchTest, WhoIsDoneDoesNotStandStill) {
  DiskWatch watch;
  watch.Begin(2, At(0));
  watch.OnDone(0, At(2));
  EXPECT_EQ(watch.standing_since(), At(0));
  watch.OnDone(1, At(7));
  EXPECT_EQ(watch.standing_since(), At(7));
  watch.OnDone(0, At(9));
  EXPECT_EQ(watch.standing_since(), At(7)) << "told again";
}

TEST(DiskWatchTest, ToBeginAgainIsNoProgress) {
  DiskWatch watch;
  watch.Begin(1, At(0));
  watch.OnProgress(0, Bytes(5, 10), At(1));
  for (int second = 2; second < 10; ++second) {
    watch.OnProgress(0, Bytes(second % 5, 10), At(second));
  }
  EXPECT_EQ(watch.standing_since(), At(1));
  watch.OnProgress(0, Bytes(6, 10), At(10));
  EXPECT_EQ(watch.standing_since(), At(10));
}

TEST(DiskWatchTest, TellsPeople) {
  DiskWatch watch;
  watch.Begin(2, At(0));
  EXPECT_EQ(watch.Describe(0), "");
  watch.OnProgress(0, Bytes(700, 9000), At(1));
  EXPECT_EQ(watch.Describe(0), "700 of 9000 bytes");
  watch.OnProgress(0, Bytes(uint64_t{3} << 30, uint64_t{20} << 30), At(2));
  EXPECT_EQ(watch.Describe(0), "3 of 20 GiB");
  watch.OnProgress(1, Bytes(uint64_t{3} << 20, uint64_t{5} << 30), At(2));
  EXPECT_EQ(watch.Describe(1), "3 of 5120 MiB");
  proto::GetStatusResponse status;
  watch.AddTo(&status);
  ASSERT_EQ(status.disk_progress_size(), 2);
  EXPECT_EQ(status.disk_progress(0).bytes_total(), uint64_t{20} << 30);
  watch.End();
  status.Clear();
  watch.AddTo(&status);
  EXPECT_EQ(status.disk_progress_size(), 0);
  EXPECT_EQ(watch.Describe(0), "");
}

}  // namespace
}  // namespace holdfast
