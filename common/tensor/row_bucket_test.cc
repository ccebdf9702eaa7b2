// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/row_bucket.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

// SplitMix64 adds 0x9e3779b97f4a7c15 to its state and applies the finalizer.
// Its first numbers from the seed 1234567 are in Rosetta Code, "Pseudo-random
// numbers/Splitmix64"; the first number from the seed 0 is in the tests of many
// libraries.
TEST(RowBucketTest, HashIsThatOfSplitMix64_B2) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  EXPECT_EQ(HashRowId(kStep), 0xe220a8397b1dcdaf);
  const uint64_t kExpected[] = {6457827717110365317u, 3203168211198807973u,
                                9817491932198370423u, 4593380528125082431u,
                                16408922859458223821u};
  uint64_t state = 1234567;
  for (const uint64_t expected : kExpected) {
    EXPECT_EQ(HashRowId(state += kStep), expected);
  }
}

// Checkpoints and placement depend on these values.
TEST(RowBucketTest, BucketsAreFixed_B2) {
  EXPECT_EQ(BucketOfRow(0), 0u);
  EXPECT_EQ(BucketOfRow(0x9e3779b97f4a7c15), 0xe220a8397b1dcdaf >> 50);
  EXPECT_EQ(BucketOfHash(~uint64_t{0}), kRowBuckets - 1);
}

TEST(RowBucketTest, EachBucketIsOnOnePs) {
  for (const uint32_t num_ps : {1, 2, 3, 7, 1000, 16384, 20000}) {
    uint32_t next = 0;
    for (uint32_t ps = 0; ps < num_ps; ++ps) {
      const BucketRange range = BucketsOfPs(ps, num_ps);
      EXPECT_EQ(range.begin, next) << ps << " of " << num_ps;
      EXPECT_LE(range.size(), kRowBuckets / num_ps + 1);
      for (uint32_t bucket = range.begin; bucket < range.end; ++bucket) {
        EXPECT_EQ(PsOfBucket(bucket, num_ps), ps) << bucket;
      }
      next = range.end;
    }
    EXPECT_EQ(next, kRowBuckets) << num_ps;
  }
}

// Consecutive ids are spread over the buckets like random ones: chi-square with
// 16,383 degrees of freedom has a mean of 16,383 and a standard deviation of
// 181.
TEST(RowBucketTest, ConsecutiveIdsSpread) {
  constexpr uint64_t kPerBucket = 16;
  std::vector<uint64_t> count(kRowBuckets);
  for (uint64_t id = 0; id < kPerBucket * kRowBuckets; ++id) {
    ++count[BucketOfRow(id)];
  }
  double chi_square = 0;
  for (const uint64_t seen : count) {
    const double off = static_cast<double>(seen) - kPerBucket;
    chi_square += off * off / kPerBucket;
  }
  EXPECT_GT(chi_square, 16383 - 4 * 181);
  EXPECT_LT(chi_square, 16383 + 4 * 181);
}

}  // namespace
}  // namespace holdfast
