// SPDX-License-Identifier: Apache-2.0
#include "worker/input/image_augmenter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <vector>

#include "absl/status/status.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ImageAugmenter Make(const std::vector<int64_t>& shape,
                    const ImageAugmenter::Options& options) {
  auto augmenter = ImageAugmenter::Create(shape, options);
  EXPECT_TRUE(augmenter.ok()) << augmenter.status();
  return *augmenter;
}

TEST(ImageAugmenterTest, MovesAndMirrors) {
  const ImageAugmenter augmenter =
      Make({2, 3}, {.max_shift = 1, .horizontal_flip = true, .fill = -1});
  const std::vector<float> image = {1, 2, 3,  //
                                    4, 5, 6};
  const auto changed = [&](bool flip, int64_t down, int64_t right) {
    std::vector<float> result(6, 99);
    augmenter.Apply({flip, down, right}, image, absl::MakeSpan(result));
    return result;
  };
  EXPECT_EQ(changed(false, 0, 0), image);
  EXPECT_THAT(changed(true, 0, 0), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(changed(false, 1, 0), ElementsAre(-1, -1, -1, 1, 2, 3));
  EXPECT_THAT(changed(false, -1, 0), ElementsAre(4, 5, 6, -1, -1, -1));
  EXPECT_THAT(changed(false, 0, 1), ElementsAre(-1, 1, 2, -1, 4, 5));
  EXPECT_THAT(changed(false, 0, -1), ElementsAre(2, 3, -1, 5, 6, -1));
  // Mirrored first: (3 2 1 / 6 5 4), and then moved.
  EXPECT_THAT(changed(true, 0, 1), ElementsAre(-1, 3, 2, -1, 6, 5));
  EXPECT_THAT(changed(true, 1, -1), ElementsAre(-1, -1, -1, 2, 1, -1));
}

TEST(ImageAugmenterTest, MovesPixelsOfSeveralChannels) {
  const ImageAugmenter augmenter =
      Make({1, 3, 2}, {.max_shift = 0, .horizontal_flip = true, .fill = -1});
  const std::vector<float> image = {1, 2, 3, 4, 5, 6};
  const auto changed = [&](bool flip, int64_t right) {
    std::vector<float> result(6, 99);
    augmenter.Apply({flip, 0, right}, image, absl::MakeSpan(result));
    return result;
  };
  EXPECT_EQ(changed(false, 0), image);
  EXPECT_THAT(changed(true, 0), ElementsAre(5, 6, 3, 4, 1, 2));
  EXPECT_THAT(changed(false, 1), ElementsAre(-1, -1, 1, 2, 3, 4));
  EXPECT_THAT(changed(true, -1), ElementsAre(3, 4, 1, 2, -1, -1));
  EXPECT_THAT(changed(true, 1), ElementsAre(-1, -1, 5, 6, 3, 4));
}

// All of the 2 x 5 x 5 changes are equally likely. Each is expected 1000 times
// in 50,000 draws, with a standard deviation of 31.
TEST(ImageAugmenterTest, AllChangesAreAsLikely) {
  const ImageAugmenter augmenter =
      Make({28, 28}, {.seed = 3, .max_shift = 2, .horizontal_flip = true});
  std::map<std::tuple<bool, int64_t, int64_t>, int> counts;
  for (int64_t position = 0; position < 50000; ++position) {
    const auto change = augmenter.ChangeAt(position);
    ++counts[{change.flip, change.down, change.right}];
  }
  EXPECT_EQ(counts.size(), 50u);
  for (const auto& [change, count] : counts) {
    EXPECT_GE(std::get<1>(change), -2);
    EXPECT_LE(std::get<1>(change), 2);
    EXPECT_NEAR(count, 1000, 150);
  }
}

TEST(ImageAugmenterTest, SeedAndPositionDecide) {
  const auto changes = [](uint64_t seed, int64_t first) {
    const ImageAugmenter augmenter = Make(
        {28, 28}, {.seed = seed, .max_shift = 13, .horizontal_flip = true});
    std::vector<int64_t> changes;
    for (int64_t i = 0; i < 20; ++i) {
      const auto change = augmenter.ChangeAt(first + i);
      changes.push_back(change.flip);
      changes.push_back(change.down);
      changes.push_back(change.right);
    }
    return changes;
  };
  constexpr uint64_t kHigh = uint64_t{1} << 32;
  EXPECT_EQ(changes(1, 0), changes(1, 0));
  EXPECT_NE(changes(1, 0), changes(2, 0));
  EXPECT_NE(changes(1, 0), changes(1 + kHigh, 0));
  EXPECT_NE(changes(1, 0), changes(1, kHigh));
  // These must never change: a job that is resumed continues with them. From
  // words 0 to 2 of Philox4x32({position, 0, 0, 0x6175676d}, {1, 0}), by
  // another program.
  EXPECT_THAT(absl::MakeConstSpan(changes(1, 0)).first(9),
              ElementsAre(1, -9, 1, 1, 7, -8, 0, -10, 5));
}

TEST(ImageAugmenterTest, NothingToDo) {
  const ImageAugmenter augmenter = Make({2, 2}, {});
  for (int64_t position = 0; position < 100; ++position) {
    const auto change = augmenter.ChangeAt(position);
    EXPECT_FALSE(change.flip || change.down != 0 || change.right != 0);
  }
}

TEST(ImageAugmenterTest, RefusesWhatLeavesNothing) {
  EXPECT_TRUE(ImageAugmenter::Create({3, 4}, {.max_shift = 2}).ok());
  for (const int64_t shift : {int64_t{3}, int64_t{-1}, int64_t{1} << 62}) {
    const absl::Status status =
        ImageAugmenter::Create({3, 4}, {.max_shift = shift}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("must be less than their height and width"));
  }
  EXPECT_THAT(ImageAugmenter::Create({784}, {}).status().message(),
              HasSubstr("examples of shape [784] are not images"));
}

}  // namespace
}  // namespace holdfast
