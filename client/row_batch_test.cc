// SPDX-License-Identifier: Apache-2.0
#include "client/row_batch.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RowBatch BatchOf(const std::vector<uint64_t>& ids) {
  RowBatch batch;
  batch.Assign(ids);
  return batch;
}

TEST(RowBatchTest, ByHand) {
  const RowBatch batch = BatchOf({7, 3, 7, 1, 3, 7});
  EXPECT_THAT(batch.unique(), ElementsAre(1, 3, 7));
  EXPECT_THAT(batch.inverse(), ElementsAre(2, 1, 2, 0, 1, 2));
  const float gradients[] = {1, 10, 2, 20, 4, 40, 8, 80, 16, 160, 32, 320};
  std::vector<float> sums(6);
  batch.Sum(gradients, 2, sums.data());
  EXPECT_THAT(sums, ElementsAre(8, 80, 18, 180, 37, 370));
  const float rows[] = {1, 3, 7};
  std::vector<float> values(6);
  batch.Spread(rows, 1, values.data());
  EXPECT_THAT(values, ElementsAre(7, 3, 7, 1, 3, 7));
}

TEST(RowBatchTest, NoIds) {
  RowBatch batch;
  batch.Assign({});
  EXPECT_THAT(batch.unique(), IsEmpty());
  EXPECT_THAT(batch.inverse(), IsEmpty());
  batch.Sum(nullptr, 4, nullptr);
  batch.Spread(nullptr, 4, nullptr);
}

// In float32 2^24 + 1 is 2^24 (a tie, to even), so the order shows.
TEST(RowBatchTest, SumsInTheOrderOfOccurrence_B5) {
  const RowBatch batch = BatchOf({5, 9, 5, 9, 5, 9});
  // (2^24 + 1) + 1 for 5, (1 + 1) + 2^24 for 9.
  const float gradients[] = {0x1p24f, 1, 1, 1, 1, 0x1p24f};
  std::vector<float> sums(2);
  batch.Sum(gradients, 1, sums.data());
  EXPECT_THAT(sums, ElementsAre(0x1p24f, 0x1p24f + 2));
}

// As if rows were added to a dense gradient that is zero at first.
TEST(RowBatchTest, ASumIsNeverMinusZero) {
  const RowBatch batch = BatchOf({5, 5, 6});
  const float gradients[] = {-0.0f, -0.0f, -0.0f};
  std::vector<float> sums(2);
  batch.Sum(gradients, 1, sums.data());
  EXPECT_FALSE(std::signbit(sums[0]));
  EXPECT_FALSE(std::signbit(sums[1]));
}

// tensorflow/tensorflow, tensorflow/python/training/adagrad_test.py,
// testSparseRepeatedIndices: gradients of 0.1 twice for row 1 do what one of
// 0.2 does.
TEST(RowBatchTest, RepeatedIndicesOfTensorFlow) {
  const RowBatch batch = BatchOf({1, 1});
  const float gradients[] = {0.1f, 0.1f};
  float sum = 0;
  batch.Sum(gradients, 1, &sum);
  EXPECT_THAT(batch.unique(), ElementsAre(1));
  EXPECT_EQ(sum, 0.2f);
}

// alibaba/x-deeplearning, xdl/test/python/unit_test/test_unique.py,
// test_unique_gpu_1d: each id once, in rising order, and where it stands.
TEST(RowBatchTest, UniqueOfXdl) {
  const RowBatch batch = BatchOf(
      {3, 1, 2, 1, 3, 1, 2, 0, 1, 3, 1, 1, 2, 0, 1, 3, 3, 2, 3, 2, 2, 1, 2, 0});
  EXPECT_THAT(batch.unique(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(batch.inverse(), ElementsAre(3, 1, 2, 1, 3, 1, 2, 0, 1, 3, 1, 1,
                                           2, 0, 1, 3, 3, 2, 3, 2, 2, 1, 2, 0));
}

// The same folder, test_take_grad.py: gradients of 5 examples, of which two use
// row 0, two row 1 and one row 2.
TEST(RowBatchTest, TakeGradOfXdl) {
  const RowBatch batch = BatchOf({0, 0, 1, 1, 2});
  const float gradients[] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f,
                             0.9f, 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f};
  std::vector<float> sums(9);
  batch.Sum(gradients, 3, sums.data());
  EXPECT_THAT(sums, ElementsAre(FloatEq(0.5f), FloatEq(0.7f), FloatEq(0.9f),
                                FloatEq(0.8f), FloatEq(1.0f), FloatEq(1.2f),
                                FloatEq(0.4f), FloatEq(0.5f), FloatEq(0.6f)));
}

// The same folder, test_ksum_grad.py, test_cpu_with_values: three examples with
// gradients 1, 2 and 3 use rows {0, 1, 2}, {3, 2, 1} and {4, 5, 0, 2}.
TEST(RowBatchTest, KSumGradOfXdl) {
  const RowBatch batch = BatchOf({0, 1, 2, 3, 2, 1, 4, 5, 0, 2});
  const float gradients[] = {1, 1, 1, 2, 2, 2, 3, 3, 3, 3};
  std::vector<float> sums(6);
  batch.Sum(gradients, 1, sums.data());
  EXPECT_THAT(sums, ElementsAre(4, 3, 6, 2, 3, 3));
}

// apache/mxnet, tests/python/unittest/test_gluon.py, test_embedding,
// check_embedding_large_input: 20,481 uses of row 1 with gradients of 1.
TEST(RowBatchTest, LargeInputOfMXNet) {
  const RowBatch batch = BatchOf(std::vector<uint64_t>(20481, 1));
  const std::vector<float> gradients(20481, 1);
  float sum = 0;
  batch.Sum(gradients.data(), 1, &sum);
  EXPECT_THAT(batch.unique(), ElementsAre(1));
  EXPECT_EQ(sum, 20481);
}

TEST(RowBatchTest, AgainstAMap) {
  std::mt19937_64 random(1);
  // One batch for all rounds, whose memory is reused.
  RowBatch batch;
  for (int round = 0; round < 200; ++round) {
    // Ids of all widths, some with many duplicates, some with the same high
    // bits.
    const uint64_t mask = ~uint64_t{0} >> random() % 64;
    const uint64_t offset = round % 2 == 0 ? 0 : random();
    const size_t length = 1 + random() % 20;
    std::vector<uint64_t> ids(random() % 400);
    for (uint64_t& id : ids) id = (random() & mask) + offset;
    std::vector<float> gradients;
    for (size_t i = 0; i < ids.size() * length; ++i) {
      gradients.push_back(static_cast<float>(random() % 2001) - 1000);
    }
    std::map<uint64_t, std::vector<float>> expected;
    for (size_t i = 0; i < ids.size(); ++i) {
      std::vector<float>& sum = expected[ids[i]];
      sum.resize(length);
      for (size_t e = 0; e < length; ++e) sum[e] += gradients[i * length + e];
    }

    batch.Assign(ids);
    ASSERT_EQ(batch.unique().size(), expected.size());
    std::vector<float> sums(expected.size() * length);
    batch.Sum(gradients.data(), length, sums.data());
    size_t row = 0;
    for (const auto& [id, sum] : expected) {
      ASSERT_EQ(batch.unique()[row], id);
      ASSERT_EQ(
          std::vector<float>(&sums[row * length], &sums[row * length] + length),
          sum);
      ++row;
    }
    std::vector<float> spread(gradients.size());
    batch.Spread(sums.data(), length, spread.data());
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(batch.unique()[batch.inverse()[i]], ids[i]);
      ASSERT_EQ(0, std::memcmp(&spread[i * length], expected[ids[i]].data(),
                               length * sizeof(float)));
    }
  }
}

TEST(RowBatchTest, WhatIsNotFiniteIsNamed) {
  const std::vector<uint64_t> ids = {4, 900};
  std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(CheckFiniteRows("users", ids, rows.data(), 3).ok());
  rows[4] = std::numeric_limits<float>::quiet_NaN();
  const absl::Status status = CheckFiniteRows("users", ids, rows.data(), 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "table \"users\": element 1 of row 900 is nan");
  rows[2] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(
      std::string(CheckFiniteRows("users", ids, rows.data(), 3).message()),
      HasSubstr("element 2 of row 4 is -inf"));
}

}  // namespace
}  // namespace holdfast::client
