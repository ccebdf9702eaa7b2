// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/checkpoint_tally.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(CheckpointTallyTest, TellsTheNewest) {
  absl::Time now = absl::UnixEpoch();
  CheckpointTally tally;
  const auto counts = [&] {
    proto::CheckpointCounts counts;
    tally.AddTo(now, &counts);
    return counts;
  };
  EXPECT_EQ(counts().written(), 0u);
  EXPECT_FALSE(counts().has_age_seconds());

  proto::Manifest manifest;
  manifest.add_files()->set_size(1000);
  manifest.add_files()->set_size(24);
  tally.OnBegun(now);
  now += absl::Seconds(3);
  tally.OnWritten(manifest, now);
  now += absl::Seconds(60);
  EXPECT_EQ(counts().written(), 1u);
  EXPECT_EQ(counts().failed(), 0u);
  EXPECT_EQ(counts().last_seconds(), 3);
  EXPECT_EQ(counts().last_bytes(), 1024u);
  EXPECT_EQ(counts().age_seconds(), 60);

  // A failed checkpoint does not change the figures of the newest.
  tally.OnBegun(now);
  now += absl::Seconds(5);
  tally.OnFailed();
  EXPECT_EQ(counts().failed(), 1u);
  EXPECT_EQ(counts().last_seconds(), 3);
  EXPECT_EQ(counts().age_seconds(), 65);

  manifest.mutable_files()->RemoveLast();
  tally.OnBegun(now);
  now += absl::Seconds(2);
  tally.OnWritten(manifest, now);
  EXPECT_EQ(counts().written(), 2u);
  EXPECT_EQ(counts().last_seconds(), 2);
  EXPECT_EQ(counts().last_bytes(), 1000u);
  EXPECT_EQ(counts().age_seconds(), 0);
}

}  // namespace
}  // namespace holdfast
