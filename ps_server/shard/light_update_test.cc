// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/light_update.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(IsLightUpdateTest, OnlyApplicationsOfMuchAreHeavy) {
  proto::PushPullRequest request;
  request.mutable_contribution();
  EXPECT_TRUE(IsLightUpdate(request, 1 << 30));
  request.mutable_application();
  EXPECT_TRUE(IsLightUpdate(request, kLightUpdateBytes));
  EXPECT_FALSE(IsLightUpdate(request, kLightUpdateBytes + 1));
}

TEST(LightUpdatesTest, ACommitIsAsLargeAsItsGradientsHere) {
  LightUpdates updates(/*ps=*/1);
  proto::RestoreRequest restore;
  const auto add = [&](uint32_t ps, uint64_t elements) {
    restore.add_slices()->set_ps(ps);
    restore.mutable_slices()->rbegin()->set_size(elements);
  };
  const uint64_t half = kLightCommitBytes / 2 / sizeof(float);
  add(0, 10 * half);
  add(1, half - 1);
  add(1, 1);
  EXPECT_FALSE(updates.IsLight(restore));

  proto::CommitRequest commit;
  EXPECT_TRUE(updates.IsLight(commit));
  commit.add_contributions();
  commit.add_contributions();
  EXPECT_TRUE(updates.IsLight(commit));
  commit.add_contributions();
  EXPECT_FALSE(updates.IsLight(commit));

  // Another generation, which holds less.
  restore.mutable_slices()->RemoveLast();
  restore.mutable_slices(1)->set_size(half / 2);
  EXPECT_FALSE(updates.IsLight(restore));
  EXPECT_TRUE(updates.IsLight(commit));
  EXPECT_FALSE(updates.IsLight(proto::SaveRequest()));
}

}  // namespace
}  // namespace holdfast
