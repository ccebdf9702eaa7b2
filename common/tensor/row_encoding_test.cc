// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/row_encoding.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<float> ThereAndBack(proto::Encoding encoding, size_t length,
                                const std::vector<uint64_t>& ids,
                                const std::vector<float>& rows,
                                const RowRounding& rounding = {}) {
  const Buffer bytes = EncodeRows(encoding, length, ids, rows, rounding);
  EXPECT_EQ(bytes.size(), ids.size() * EncodedRowBytes(encoding, length));
  std::vector<float> back(rows.size(), -1.0f);
  DecodeRows(encoding, length, bytes, back.data());
  return back;
}

TEST(RowEncodingTest, SaysWhatTablesMayHave) {
  EXPECT_TRUE(IsRowPush(proto::INT8));
  EXPECT_FALSE(IsRowPull(proto::INT8));
  EXPECT_FALSE(IsRowPush(proto::TOP_K));
  for (const proto::Encoding encoding :
       {proto::EXACT, proto::FLOAT16, proto::BFLOAT16}) {
    EXPECT_TRUE(IsRowPush(encoding) && IsRowPull(encoding));
  }
}

TEST(RowEncodingTest, HalvesRound) {
  const std::vector<float> rows = {1, -2.5f, 1.00048828125f, 70000};
  EXPECT_EQ(ThereAndBack(proto::EXACT, 2, {3, 9}, rows), rows);
  EXPECT_THAT(ThereAndBack(proto::FLOAT16, 2, {3, 9}, rows),
              ElementsAre(1, -2.5f, 1, 65504));
  EXPECT_THAT(ThereAndBack(proto::BFLOAT16, 2, {3, 9}, rows),
              ElementsAre(1, -2.5f, 1, 70144));
}

TEST(RowEncodingTest, Int8ScalesEachRow) {
  EXPECT_THAT(ThereAndBack(proto::INT8, 2, {3, 9}, {127, -5, 0.0f, 0.0f}),
              ElementsAre(127, -5, 0, 0));
  const std::vector<float> back =
      ThereAndBack(proto::INT8, 3, {7}, {1.27e-3f, 4e-4f, -1.27e-3f});
  EXPECT_FLOAT_EQ(back[0], 1.27e-3f);
  EXPECT_NEAR(back[1], 4e-4f, 1e-5f);
  EXPECT_FLOAT_EQ(back[2], -1.27e-3f);
}

TEST(RowEncodingTest, Int8FollowsFromSeedStepIdAndElement_B16) {
  std::vector<float> row(6, 0.5f);
  row[0] = 127;
  const auto at = [&](uint64_t seed, uint64_t step, uint64_t id) {
    return ThereAndBack(proto::INT8, 6, {id}, row, {seed, step});
  };
  EXPECT_EQ(at(1, 2, 40), at(1, 2, 40));
  // Whichever rows it is sent with.
  std::vector<float> two(12, 3.0f);
  std::copy(row.begin(), row.end(), two.begin() + 6);
  const std::vector<float> second =
      ThereAndBack(proto::INT8, 6, {2, 40}, two, {1, 2});
  EXPECT_EQ(std::vector<float>(second.begin() + 6, second.end()), at(1, 2, 40));
  // With other seeds, steps and ids, most of the values differ.
  int same_seed = 0, same_step = 0, same_id = 0;
  for (uint64_t i = 0; i < 32; ++i) {
    same_seed += at(i, 2, 40) == at(i + 1, 2, 40);
    same_step += at(1, i, 40) == at(1, i + 1, 40);
    same_id += at(1, 2, i) == at(1, 2, i + 1);
  }
  EXPECT_LT(same_seed, 8);
  EXPECT_LT(same_step, 8);
  EXPECT_LT(same_id, 8);
  // Golden bits: other bits would give other models.
  EXPECT_THAT(at(1, 2, 40), ElementsAre(127, 1, 0, 0, 1, 0));
  EXPECT_THAT(at(1, uint64_t{1} << 39, 40), ElementsAre(127, 1, 1, 1, 0, 1));
}

TEST(RowEncodingTest, TheMeanOfInt8IsTheGradient) {
  const std::vector<float> row = {127, 0.25f, -0.75f, 10.5f, 3};
  std::vector<double> sum(row.size());
  constexpr int kSteps = 20000;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> back = ThereAndBack(
        proto::INT8, 5, {99}, row, {7, static_cast<uint64_t>(step)});
    for (size_t i = 0; i < row.size(); ++i) {
      sum[i] += back[i];
      EXPECT_LE(std::abs(back[i] - row[i]), 1.0f);
    }
  }
  // Five standard deviations of at most 1/2.
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(sum[i] / kSteps, row[i], 2.5 / std::sqrt(kSteps)) << i;
  }
}

TEST(RowEncodingTest, WhatIsNotFiniteIsSentAsNaN) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<bool> is_nan;
    for (const float value : ThereAndBack(proto::INT8, 3, {1}, {1, bad, 2})) {
      is_nan.push_back(std::isnan(value));
    }
    EXPECT_THAT(is_nan, Each(true));
  }
  // A scale below the smallest number.
  EXPECT_THAT(ThereAndBack(proto::INT8, 2, {1}, {1e-45f, 0}),
              ElementsAre(0, 0));
}

}  // namespace
}  // namespace holdfast
