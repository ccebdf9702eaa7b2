// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/weights.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(WeightsTest, OfAMean) {
  const struct {
    const char* what;
    std::vector<MeanTerm> terms;
    std::vector<float> weights;
    float divisor;
  } kCases[] = {
      {"equal batches", {{25}, {25}, {25}}, {1, 1, 1}, 3},
      // gcd(10, 20, 34) = 2, and 64 / 2 = 32.
      {"unequal batches", {{10}, {20}, {34}}, {5, 10, 17}, 32},
      {"a shorter batch", {{100}, {100}, {37}}, {100, 100, 37}, 237},
      {"one alone", {{7}}, {1}, 1},
      // The mean's denominator keeps the examples of clipped gradients.
      {"clipped", {{16, 0.5f}, {48}}, {0.5f, 3}, 4},
      {"clipped to nothing", {{32, 0.f}, {32}}, {0, 1}, 2},
      // A worker with nothing to give does not thin out the others.
      {"without examples", {{0}, {30}, {10}}, {0, 3, 1}, 4},
      {"nobody has examples: not 0 / 0", {{0}, {0}}, {0, 0}, 1},
      // A total of 2^16 is the greatest divisor.
      {"the greatest divisor", {{1}, {65535}}, {1, 65535}, 65536},
      // float(1 / 65537) and float(65536 / 65537), in rational arithmetic:
      // 0x1.fffep-17 and 0x1.fffep-1.
      {"above it, weights are divided",
       {{1}, {65536}},
       {0x1.fffep-17f, 0x1.fffep-1f},
       1},
      // float(0.7) x 131071 / 1000000, exactly and then rounded once, is
      // 0x1.77ce88p-4 (rational arithmetic).
      {"rounded once",
       {{131071, 0.7f}, {868929}},
       {0x1.77ce88p-4f, static_cast<float>(868929 / 1e6)},
       1},
      {"the most examples that a worker may tell",
       {{1000000000000}, {1000000000000}},
       {1, 1},
       2},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    const MeanWeights mean = WeightsOfMean(c.terms);
    EXPECT_EQ(mean.weights, c.weights);
    EXPECT_EQ(mean.divisor, c.divisor);
  }
}

TEST(WeightsTest, AnyNumberOfEqualBatchesIsDivided) {
  const MeanWeights mean =
      WeightsOfMean(std::vector<MeanTerm>(65536, MeanTerm{100}));
  EXPECT_THAT(mean.weights, Each(1));
  EXPECT_EQ(mean.divisor, 65536);
}

TEST(WeightsTest, OfASum) {
  const MeanWeights sum = WeightsOfSum({{16, 0.5f}, {0}, {48}, {1, 0.f}});
  EXPECT_THAT(sum.weights, ElementsAre(0.5f, 0, 1, 0));
  EXPECT_EQ(sum.divisor, 1);
}

}  // namespace
}  // namespace holdfast
