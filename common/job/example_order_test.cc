// SPDX-License-Identifier: Apache-2.0
#include "common/job/example_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace holdfast {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Stream(const ExampleOrder& order, int64_t begin,
                            int64_t end) {
  std::vector<int64_t> examples;
  for (int64_t p = begin; p < end; ++p) examples.push_back(order.At(p));
  return examples;
}

TEST(ExampleOrderTest, EveryEpochVisitsEveryExampleOnce) {
  for (int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 100, 255, 256, 257, 1000}) {
    std::vector<int64_t> all(n);
    std::iota(all.begin(), all.end(), 0);
    const ExampleOrder order(/*seed=*/1, n);
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<int64_t> seen = Stream(order, epoch * n, (epoch + 1) * n);
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, all) << n << " examples, epoch " << epoch;
    }
  }
}

constexpr Shuffle::Kind kBlocks = Shuffle::Kind::kBlocks;

TEST(ExampleOrderTest, BlocksAndNoneVisitEveryExampleOnceToo) {
  for (int64_t n : {1, 2, 3, 5, 15, 16, 17, 100, 255, 256, 257, 1000}) {
    std::vector<int64_t> all(n);
    std::iota(all.begin(), all.end(), 0);
    for (int64_t block : {1, 2, 3, 16, 99, 100, 101, 4096}) {
      const ExampleOrder order(/*seed=*/1, n, {kBlocks, block});
      for (int64_t epoch = 0; epoch < 5; ++epoch) {
        std::vector<int64_t> seen = Stream(order, epoch * n, (epoch + 1) * n);
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(seen, all)
            << n << " examples in blocks of " << block << ", epoch " << epoch;
      }
    }
    const ExampleOrder none(/*seed=*/1, n, {Shuffle::Kind::kNone});
    EXPECT_EQ(Stream(none, 0, n), all);
    EXPECT_EQ(Stream(none, 3 * n, 4 * n), all);
  }
}

// Blocks are not interleaved, and the short one, of 7 examples, is equally
// likely at each place, like the 9 others.
TEST(ExampleOrderTest, StaysWithinABlock) {
  constexpr int64_t kBlock = 10, kExamples = 97, kEpochs = 2000;
  const ExampleOrder order(/*seed=*/3, kExamples, {kBlocks, kBlock});
  std::vector<int> places(10);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> stream =
        Stream(order, epoch * kExamples, (epoch + 1) * kExamples);
    int changes = 0;
    for (int64_t i = 1; i < kExamples; ++i) {
      if (stream[i] / kBlock == stream[i - 1] / kBlock) continue;
      ++changes;
    }
    EXPECT_EQ(changes, 9);
    const auto short_block =
        std::find_if(stream.begin(), stream.end(),
                     [](int64_t example) { return example >= 90; });
    ++places[(short_block - stream.begin()) / kBlock];
  }
  // Binomial, with a mean of 200 and a standard deviation of 13.4.
  for (const int count : places) EXPECT_NEAR(count, 200, 5 * 13.4);
}

TEST(ExampleOrderTest, BlocksDifferFromEpochToEpoch) {
  const ExampleOrder order(1, 100, {kBlocks, 10});
  const std::vector<int64_t> first = Stream(order, 0, 100);
  const std::vector<int64_t> second = Stream(order, 100, 200);
  const auto blocks_of = [](const std::vector<int64_t>& stream) {
    std::vector<int64_t> blocks;
    for (size_t i = 0; i < stream.size(); i += 10) {
      blocks.push_back(stream[i] / 10);
    }
    return blocks;
  };
  const auto within_first_block = [](const std::vector<int64_t>& stream) {
    std::vector<int64_t> within;
    for (const int64_t example : stream) {
      if (example < 10) within.push_back(example);
    }
    return within;
  };
  EXPECT_NE(blocks_of(first), blocks_of(second));
  EXPECT_NE(within_first_block(first), within_first_block(second));
  EXPECT_NE(Stream(ExampleOrder(2, 100, {kBlocks, 10}), 0, 100), first);
  // Two blocks of an epoch have different orders inside.
  std::vector<int64_t> a(first.begin(), first.begin() + 10);
  std::vector<int64_t> b(first.begin() + 10, first.begin() + 20);
  for (int64_t& example : a) example %= 10;
  for (int64_t& example : b) example %= 10;
  EXPECT_NE(a, b);
}

// The order is a contract: a job that continues after an upgrade, or runs on
// workers of two builds, must find the same examples. The values are from the
// first version.
TEST(ExampleOrderTest, OrderNeverChanges) {
  EXPECT_THAT(
      Stream(ExampleOrder(1, 10), 0, 20),
      ElementsAre(2, 4, 0, 5, 9, 7, 6, 3, 1, 8, 4, 5, 9, 7, 0, 2, 1, 8, 6, 3));
  const ExampleOrder mnist(0x123456789abcdef0, 60000);
  EXPECT_THAT(Stream(mnist, 59998, 60004),
              ElementsAre(17053, 18377, 23393, 19516, 4808, 9599));
  EXPECT_EQ(ExampleOrder(1, int64_t{1} << 62).At(12345), 115130522557311161);
  EXPECT_THAT(
      Stream(ExampleOrder(1, 10, {kBlocks, 4}), 0, 20),
      ElementsAre(3, 0, 1, 2, 8, 9, 6, 4, 5, 7, 8, 9, 6, 7, 5, 4, 1, 3, 0, 2));
}

TEST(ExampleOrderTest, SeedAndEpochMakeTheOrder) {
  const ExampleOrder order(1, 100), same(1, 100), other(2, 100);
  // Beyond 32 bits too.
  const ExampleOrder far(uint64_t{1} << 32 | 1, 100);
  const std::vector<int64_t> first = Stream(order, 0, 100);
  EXPECT_EQ(Stream(same, 0, 100), first);
  EXPECT_NE(Stream(order, 100, 200), first);
  EXPECT_NE(Stream(other, 0, 100), first);
  EXPECT_NE(Stream(far, 0, 100), first);
}

// Each example is equally likely at each place: over 4000 epochs the count is
// 4000/n on average, with a standard deviation of at most sqrt(4000/n); the sum
// of squared deviations divided by the mean is chi-squared with (n - 1)^2
// degrees of freedom, so it is within 5 standard deviations of its mean in all
// but one in a million cases. The order is fixed, so the test is not flaky.
TEST(ExampleOrderTest, PlacesAreUniform) {
  constexpr int kEpochs = 4000;
  for (int n : {2, 3, 5, 8, 10, 16, 17, 30}) {
    const ExampleOrder order(/*seed=*/7, n);
    std::vector<int> counts(n * n);
    for (int64_t p = 0; p < int64_t{n} * kEpochs; ++p) {
      ++counts[p % n * n + order.At(p)];
    }
    const double mean = double{kEpochs} / n;
    double chi_squared = 0;
    for (int count : counts) {
      chi_squared += (count - mean) * (count - mean) / mean;
    }
    const double freedom = (n - 1) * (n - 1);
    EXPECT_LT(chi_squared, freedom + 5 * std::sqrt(2 * freedom)) << n;
    EXPECT_GT(chi_squared, freedom - 5 * std::sqrt(2 * freedom)) << n;
  }
}

// Neighbours in one epoch are not neighbours in the next, nor in the data: of
// 10,000 examples about 1 in 5,000 follows its neighbour by chance.
TEST(ExampleOrderTest, NeighboursArePart) {
  constexpr int64_t kExamples = 10000;
  const ExampleOrder order(3, kExamples);
  std::vector<int64_t> place(kExamples);
  for (int64_t p = 0; p < kExamples; ++p) place[order.At(p)] = p;
  int in_data = 0, in_epoch = 0;
  for (int64_t p = kExamples; p + 1 < 2 * kExamples; ++p) {
    const int64_t a = order.At(p), b = order.At(p + 1);
    in_data += std::abs(a - b) == 1;
    in_epoch += std::abs(place[a] - place[b]) == 1;
  }
  EXPECT_LT(in_data, 12);
  EXPECT_LT(in_epoch, 12);
}

}  // namespace
}  // namespace holdfast
