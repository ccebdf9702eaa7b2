// SPDX-License-Identifier: Apache-2.0
#include "client/row_request.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;

class RowRequestTest : public ::testing::Test {
 protected:
  // "t", whose rows have 2 values, and "u", whose rows have 1.
  RowRequestTest() {
    for (const auto& [name, length] : {std::pair("t", 2), {"u", 1}}) {
      proto::EmbeddingTable& table = *tables_.Add();
      table.set_name(name);
      table.set_row_length(length);
    }
  }

  // Acts as a pull: row i has the values 10 i, 10 i + 1.
  static void Pull(Parameters* values, size_t table, size_t length) {
    const auto rows = values->WriteRows(table, length);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = 10 * values->RowIds(table)[i / length] + i % length;
    }
  }

  std::string Error(const std::vector<RowUse>& uses) {
    const absl::Status status = request_.Assign(tables_, uses);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(request_.size(), 0);
    return std::string(status.message());
  }

  EmbeddingTables tables_;
  RowRequest request_;
};

TEST_F(RowRequestTest, RowsAreCopiedToWhereTheyAreUsed) {
  const std::vector<uint64_t> of_t = {5, 2, 5};
  const std::vector<uint64_t> of_u = {9};
  ASSERT_EQ(request_.Assign(tables_, {{0, of_t}, {1, of_u}}), absl::OkStatus());
  Parameters values;
  EXPECT_FALSE(request_.IsWantedFrom(values));
  request_.WantFrom(&values);
  EXPECT_TRUE(request_.IsWantedFrom(values));
  EXPECT_THAT(values.RowIds(0), ElementsAre(2, 5));
  EXPECT_FALSE(request_.IsIn(values));
  Pull(&values, 0, 2);
  EXPECT_FALSE(request_.IsIn(values));
  Pull(&values, 1, 1);
  ASSERT_TRUE(request_.IsIn(values));
  std::vector<float> into(request_.num_values(0));
  request_.Copy(0, values, into.data());
  EXPECT_THAT(into, ElementsAre(50, 51, 20, 21, 50, 51));
}

TEST_F(RowRequestTest, RowsAreFoundAmongOthers) {
  const std::vector<uint64_t> pulled = {1, 2, 3, 7};
  const std::vector<uint64_t> used = {7, 2};
  const std::vector<uint64_t> missing = {2, 4};
  Parameters values;
  values.WantRows(0, pulled);
  Pull(&values, 0, 2);
  ASSERT_EQ(request_.Assign(tables_, {{0, used}}), absl::OkStatus());
  EXPECT_FALSE(request_.IsWantedFrom(values));
  ASSERT_TRUE(request_.IsIn(values));
  std::vector<float> into(request_.num_values(0));
  request_.Copy(0, values, into.data());
  EXPECT_THAT(into, ElementsAre(70, 71, 20, 21));
  ASSERT_EQ(request_.Assign(tables_, {{0, missing}}), absl::OkStatus());
  EXPECT_FALSE(request_.IsIn(values));
}

TEST_F(RowRequestTest, WhatWasWantedBeforeIsNotWantedAnyMore) {
  const std::vector<uint64_t> ids = {1};
  Parameters values;
  values.WantRows(0, ids);
  ASSERT_EQ(request_.Assign(tables_, {{1, ids}}), absl::OkStatus());
  EXPECT_FALSE(request_.IsWantedFrom(values));
  request_.WantFrom(&values);
  EXPECT_TRUE(request_.IsWantedFrom(values));
  EXPECT_TRUE(values.RowIds(0).empty());
  EXPECT_THAT(values.RowIds(1), ElementsAre(1));
}

TEST_F(RowRequestTest, MistakesNameTheTable) {
  const std::vector<uint64_t> ids = {1};
  EXPECT_EQ(Error({{2, ids}}), "there is no table 2, only 2");
  EXPECT_EQ(Error({{1, ids}, {0, ids}, {1, ids}}),
            "table \"u\" is named twice: its rows are read together");
  ASSERT_EQ(request_.Assign(tables_, {{0, ids}}), absl::OkStatus());
  EXPECT_EQ(request_.CheckSize(0, 2), absl::OkStatus());
  EXPECT_EQ(request_.CheckSize(0, 3),
            absl::InvalidArgumentError(
                "table \"t\": 1 rows of 2 values are 2 numbers, not 3"));
}

}  // namespace
}  // namespace holdfast::client
