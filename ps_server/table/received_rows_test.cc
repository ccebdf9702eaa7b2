// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/received_rows.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/table/testing/table_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> GradientOf(const ReceivedRows& rows, size_t row,
                              size_t length) {
  std::vector<float> gradient(length);
  std::memcpy(gradient.data(), rows.gradient(row), length * sizeof(float));
  return gradient;
}

TEST(ReceivedRowsTest, RowsInSpansThatCutThem) {
  const proto::EmbeddingTable table = Declared(3, "");
  std::vector<uint64_t> ids;
  std::vector<float> values;
  for (uint64_t id = 0; id < 50; ++id) {
    ids.push_back(id * id);
    for (size_t i = 0; i < 3; ++i) values.push_back(id + 0.25f * i);
  }
  const Buffer whole = BytesOf(values);
  for (const size_t span : {1, 2, 5, 12, 13, 100, 600}) {
    Buffer cut;
    for (size_t at = 0; at < whole.size(); at += span) {
      std::string bytes(std::min(span, whole.size() - at), '\0');
      whole.Sub(at, bytes.size()).CopyTo(bytes.data());
      cut.Append(Buffer::FromString(bytes));
    }
    const absl::StatusOr<ReceivedRows> rows =
        ReceivedRows::Parse(table, {}, ids.size(), EncodeRowIds(ids), cut);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(std::vector<uint64_t>(rows->ids().begin(), rows->ids().end()),
              ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_THAT(GradientOf(*rows, i, 3), ElementsAre(i, i + 0.25f, i + 0.5f));
    }
  }
}

TEST(ReceivedRowsTest, NoRows) {
  const absl::StatusOr<ReceivedRows> rows =
      ReceivedRows::Parse(Declared(3, ""), {}, 0, "", Buffer());
  ASSERT_TRUE(rows.ok());
  EXPECT_TRUE(rows->ids().empty());
}

TEST(ReceivedRowsTest, WhatDoesNotFit_B12) {
  proto::EmbeddingTable table = Declared(2, "");
  table.set_max_rows_per_push(3);
  const auto error = [&table](const std::vector<uint64_t>& ids, uint64_t count,
                              size_t floats, BucketRange buckets = {}) {
    const absl::Status status =
        ReceivedRows::Parse(table, buckets, count, EncodeRowIds(ids),
                            BytesOf(std::vector<float>(floats)))
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("table \"t\": "));
    return std::string(status.message());
  };
  EXPECT_THAT(error({1, 2, 3, 4}, 4, 8),
              HasSubstr("a push of 4 rows, but max_rows_per_push is 3"));
  EXPECT_THAT(error({1}, 1'000'000'000, 2),
              HasSubstr("a push of 1000000000 rows"));
  EXPECT_THAT(error({1, 2}, 2, 3),
              HasSubstr("gradients of 12 bytes for 2 rows of 2 float32"));
  EXPECT_THAT(error({1}, 2, 4), HasSubstr("too few for the ids of 2 rows"));
  EXPECT_THAT(error({1, 2, 3}, 2, 4), HasSubstr("bytes follow the ids"));
  // Id 0 is in bucket 0.
  EXPECT_THAT(error({0}, 1, 2, {1, kRowBuckets}),
              HasSubstr("row 0 is in bucket 0, which is not on this ps"));
}

}  // namespace
}  // namespace holdfast
