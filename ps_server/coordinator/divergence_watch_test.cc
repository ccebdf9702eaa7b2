// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/divergence_watch.h"

#include <optional>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

DivergenceWatch MakeWatch(std::optional<uint64_t> limit, uint64_t count = 0) {
  proto::Declaration declaration;
  if (limit.has_value()) {
    declaration.set_max_consecutive_not_finite(*limit);
  }
  proto::Position position;
  position.set_consecutive_not_finite(count);
  return DivergenceWatch(declaration, position);
}

void AddNotFinite(int count, DivergenceWatch* watch) {
  for (int i = 0; i < count; ++i) {
    watch->OnContribution(/*examples=*/0, /*not_finite=*/true, 0);
  }
}

TEST(DivergenceWatchTest, CountsWhatFollowsEachOther) {
  DivergenceWatch watch = MakeWatch(3);
  AddNotFinite(2, &watch);
  watch.OnContribution(16, /*not_finite=*/false, 0);
  AddNotFinite(2, &watch);
  // Says nothing: its seat had no examples.
  watch.OnContribution(0, /*not_finite=*/false, 0);
  EXPECT_FALSE(watch.diverged());
  AddNotFinite(1, &watch);
  EXPECT_TRUE(watch.diverged());
  watch.OnContribution(16, /*not_finite=*/false, 0);
  EXPECT_TRUE(watch.diverged());
}

TEST(DivergenceWatchTest, Limits) {
  DivergenceWatch by_default = MakeWatch(std::nullopt);
  AddNotFinite(99, &by_default);
  EXPECT_FALSE(by_default.diverged());
  AddNotFinite(1, &by_default);
  EXPECT_TRUE(by_default.diverged());
  DivergenceWatch none = MakeWatch(0);
  AddNotFinite(1000, &none);
  EXPECT_FALSE(none.diverged());
}

TEST(DivergenceWatchTest, GoesOnWhereACheckpointWas) {
  DivergenceWatch watch = MakeWatch(3, /*count=*/1);
  AddNotFinite(1, &watch);
  EXPECT_FALSE(watch.diverged());
  proto::Position position;
  watch.AddTo(&position);
  EXPECT_EQ(position.consecutive_not_finite(), 2u);
  AddNotFinite(1, &watch);
  EXPECT_TRUE(watch.diverged());
  EXPECT_TRUE(MakeWatch(3, /*count=*/3).diverged());
}

// Overflows may mean that the scale is too high; only at the lowest scale are
// they the job's own.
TEST(DivergenceWatchTest, ALossScaleThatCanFallIsTriedFirst) {
  DivergenceWatch watch = MakeWatch(2);
  for (const float scale : {16.0f, 8.0f, 4.0f, 2.0f}) {
    watch.OnContribution(0, /*not_finite=*/true, scale);
  }
  watch.OnContribution(0, /*not_finite=*/true, 1);
  EXPECT_FALSE(watch.diverged());
  watch.OnContribution(0, /*not_finite=*/true, 1);
  EXPECT_TRUE(watch.diverged());
}

}  // namespace
}  // namespace holdfast
