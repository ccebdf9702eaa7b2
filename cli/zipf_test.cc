// SPDX-License-Identifier: Apache-2.0
#include "cli/zipf.h"

#include <cmath>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

constexpr int kDraws = 200000;

TEST(ZipfRanksTest, RanksAreAsFrequentAsTheLawSays) {
  constexpr uint64_t kRanks = 5;
  for (const double exponent : {0.0, 0.5, 1.0, 1.05, 2.0}) {
    ZipfRanks ranks(kRanks, exponent, /*seed=*/1);
    std::vector<double> counts(kRanks + 1);
    for (int i = 0; i < kDraws; ++i) {
      const uint64_t rank = ranks.Next();
      ASSERT_GE(rank, 1);
      ASSERT_LE(rank, kRanks);
      ++counts[rank];
    }
    double sum = 0;
    for (uint64_t k = 1; k <= kRanks; ++k) sum += std::pow(k, -exponent);
    for (uint64_t k = 1; k <= kRanks; ++k) {
      const double expected = std::pow(k, -exponent) / sum;
      // Six standard deviations.
      EXPECT_NEAR(counts[k] / kDraws, expected,
                  6 * std::sqrt(expected / kDraws))
          << "rank " << k << ", exponent " << exponent;
    }
  }
}

TEST(ZipfRanksTest, OneRank) {
  ZipfRanks ranks(1, 1.05, /*seed=*/1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ranks.Next(), 1);
}

// client/row_batch_benchmark.cc draws by a table of all weights: 26,189.
TEST(ZipfRanksTest, UniqueRanksOfABatch) {
  ZipfRanks ranks(10'000'000, 1.05, /*seed=*/1);
  std::set<uint64_t> unique;
  for (int i = 0; i < 65536; ++i) unique.insert(ranks.Next());
  EXPECT_NEAR(unique.size(), 26189, 500);
}

TEST(ZipfLawTest, TheLeastLikelyOfTheMostRanks) {
  // With weights 1/k: 1, 1/2, 1/3, the last of which is 2/11 of the sum.
  EXPECT_EQ(ZipfLaw::MostRanks(1000, 1, 2.0 / 11 - 1e-9), 3);
  EXPECT_EQ(ZipfLaw::MostRanks(1000, 1, 2.0 / 11 + 1e-9), 2);
  EXPECT_EQ(ZipfLaw::MostRanks(2, 1, 0.01), 2);
  EXPECT_EQ(ZipfLaw::MostRanks(7, 1, 1.5), 1);
  EXPECT_EQ(ZipfLaw::MostRanks(1000, 0, 0.01 - 1e-9), 100);
}

TEST(ZipfRanksTest, TheSeedDecides) {
  ZipfRanks some(1000, 1.05, /*seed=*/1);
  ZipfRanks same(1000, 1.05, /*seed=*/1);
  ZipfRanks other(1000, 1.05, /*seed=*/2);
  int equal = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t rank = some.Next();
    EXPECT_EQ(same.Next(), rank);
    equal += other.Next() == rank;
  }
  EXPECT_LT(equal, 100);
}

}  // namespace
}  // namespace holdfast
