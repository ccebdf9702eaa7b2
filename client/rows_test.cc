// SPDX-License-Identifier: Apache-2.0

// Rows of embedding tables: how they are split by ps and into messages, sent
// and read.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/layout.h"
#include "client/parameters.h"
#include "client/plan.h"
#include "client/row_gradients.h"
#include "client/row_plan.h"
#include "client/row_reads.h"
#include "common/tensor/buffer.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/row_ids.h"
#include "common/tensor/tensor_piece.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kLast = ~uint64_t{0};

// "v" [2], on ps 0, and the tables "t", whose rows have 2 values, and "u",
// whose rows have 3; a push has up to 8 rows of each.
Layout MakeLayout(uint32_t num_ps) {
  proto::GetPlacementResponse placement;
  proto::Declaration& declaration = *placement.mutable_declaration();
  proto::Variable& variable = *declaration.add_variables();
  variable.set_name("v");
  variable.add_shape(2);
  variable.set_dtype(proto::FLOAT32);
  for (const auto& [name, length] : {std::pair("t", 2), {"u", 3}}) {
    proto::EmbeddingTable& table = *declaration.add_tables();
    table.set_name(name);
    table.set_row_length(length);
    table.set_max_rows_per_push(8);
  }
  proto::Slice& slice = *placement.add_slices();
  slice.set_variable("v");
  slice.set_size(2);
  return *Layout::Make(placement, num_ps);
}

// Ids, some of which belong to each of three ps.
const std::vector<uint64_t> kIds = {0, 1, 2, 3, 5, 8, 13, kLast};

uint32_t PsOf(uint64_t id, uint32_t num_ps) {
  return PsOfBucket(BucketOfRow(id), num_ps);
}

// Element e of row i of a table: no two are equal.
float Value(size_t i, size_t e) { return static_cast<float>(10 * i + e + 1); }
std::vector<float> Values(size_t rows, size_t length) {
  std::vector<float> values;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t e = 0; e < length; ++e) values.push_back(Value(i, e));
  }
  return values;
}

// "t[0,2) u[0,1) | u[1,3)".
std::string PartsOf(const RowPlan& plan, uint32_t ps) {
  std::string text;
  for (const RowPlan::Part& part : plan.parts(ps)) {
    if (!text.empty()) text += " | ";
    for (const RowPlan::RowRange& range : part) {
      if (!text.empty() && text.back() != ' ') text += " ";
      absl::StrAppend(&text, range.table == 0 ? "t" : "u", "[", range.begin,
                      ",", range.begin + range.size, ")");
    }
  }
  return text;
}

std::vector<float> FloatsOf(const TensorPiece& piece) {
  std::vector<float> values(piece.data.size() / sizeof(float));
  piece.data.CopyTo(values.data());
  return values;
}
std::vector<uint64_t> IdsOf(const proto::RowIds& rows) {
  const auto ids = DecodeRowIds(rows.ids(), rows.num_rows());
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(std::vector<uint64_t>());
}

TEST(RowPlanTest, IdsAreChecked) {
  const Layout layout = MakeLayout(1);
  EXPECT_EQ(CheckRowIds(layout, 1, kIds), absl::OkStatus());
  EXPECT_EQ(CheckRowIds(layout, 1, {}), absl::OkStatus());
  EXPECT_EQ(CheckRowIds(layout, 2, {}),
            absl::InvalidArgumentError("there is no table 2, only 2"));
  const std::vector<uint64_t> twice = {1, 4, 4};
  EXPECT_EQ(
      CheckRowIds(layout, 0, twice),
      absl::InvalidArgumentError("table \"t\": row 4 is followed by row "
                                 "4, but ids must be strictly increasing"));
  const std::vector<uint64_t> falling = {kLast, 0};
  EXPECT_FALSE(CheckRowIds(layout, 0, falling).ok());
}

TEST(RowPlanTest, APsHasTheRowsOfItsBuckets) {
  constexpr uint32_t kPs = 3;
  const Layout layout = MakeLayout(kPs);
  RowPlan plan(&layout);
  plan.Set(0, kIds);
  plan.Cut(1 << 20);
  std::vector<uint64_t> all(kIds.size());
  for (uint32_t ps = 0; ps < kPs; ++ps) {
    ASSERT_THAT(plan.parts(ps), SizeIs(1));
    ASSERT_THAT(plan.parts(ps)[0], SizeIs(1));
    const RowPlan::RowRange range = plan.parts(ps)[0][0];
    const absl::Span<const uint64_t> ids = plan.Ids(ps, range);
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    EXPECT_EQ(plan.BytesOf(ps), ids.size() * 2 * sizeof(float));
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_TRUE(BucketsOfPs(ps, kPs).Contains(BucketOfRow(ids[i])));
      all[plan.Places(ps, range)[i]] = ids[i];
    }
  }
  EXPECT_EQ(all, kIds);
}

TEST(RowPlanTest, WithOnePsIdsStayWhereTheyAre) {
  const Layout layout = MakeLayout(1);
  RowPlan plan(&layout);
  plan.Set(1, kIds);
  plan.Cut(1 << 20);
  ASSERT_EQ(PartsOf(plan, 0), "u[0,8)");
  EXPECT_EQ(plan.Ids(0, plan.parts(0)[0][0]).data(), kIds.data());
  EXPECT_THAT(plan.Places(0, plan.parts(0)[0][0]), IsEmpty());
}

TEST(RowPlanTest, PartsAreFilledTableAfterTable) {
  const Layout layout = MakeLayout(1);
  const auto cut = [&](int64_t part_bytes) {
    RowPlan plan(&layout);
    plan.Set(0, absl::MakeConstSpan(kIds).first(5));
    plan.Set(1, absl::MakeConstSpan(kIds).first(3));
    plan.Cut(part_bytes);
    return PartsOf(plan, 0);
  };
  // Rows have 8 and 12 bytes.
  EXPECT_EQ(cut(76), "t[0,5) u[0,3)");
  EXPECT_EQ(cut(75), "t[0,5) u[0,2) | u[2,3)");
  EXPECT_EQ(cut(24), "t[0,3) | t[3,5) | u[0,2) | u[2,3)");
  // At least one row.
  EXPECT_EQ(cut(1),
            "t[0,1) | t[1,2) | t[2,3) | t[3,4) | t[4,5) | u[0,1) | u[1,2) | "
            "u[2,3)");
}

TEST(RowPlanTest, IdsCountAgainstABoundOfTheirOwn) {
  const Layout layout = MakeLayout(1);
  std::vector<uint64_t> ids(150000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = kLast - ids.size() + i;
  RowPlan plan(&layout);
  plan.Set(0, ids);
  plan.Cut(1 << 30);
  // 10 bytes each, and 122 for the table, of 1 MiB: 104845 rows.
  EXPECT_EQ(PartsOf(plan, 0), "t[0,104845) | t[104845,150000)");
}

TEST(RowPlanTest, APsWithoutAnythingHasAnEmptyPart) {
  const Layout layout = MakeLayout(2);
  RowPlan plan(&layout);
  plan.Cut(1 << 20);
  plan.AddEmptyParts(PlanPush(layout, 1 << 20));
  EXPECT_THAT(plan.parts(0), IsEmpty());  // it has "v"
  EXPECT_THAT(plan.parts(1), ElementsAre(IsEmpty()));
}

TEST(RowGradientsTest, WhatDoesNotFitIsRefused) {
  const Layout layout = MakeLayout(1);
  const Plan plan = PlanPush(layout, 1 << 20);
  RowGradients rows(&layout, &plan);
  const std::vector<uint64_t> ids = {3, 7};
  const std::vector<float> gradients = Values(2, 2);
  EXPECT_EQ(rows.Check(2, ids, gradients),
            absl::InvalidArgumentError("there is no table 2, only 2"));
  const std::vector<uint64_t> falling = {7, 3};
  EXPECT_EQ(
      rows.Check(0, falling, gradients),
      absl::InvalidArgumentError("table \"t\": row 7 is followed by row "
                                 "3, but ids must be strictly increasing"));
  EXPECT_EQ(rows.Check(1, ids, gradients),
            absl::InvalidArgumentError("table \"u\": the gradients of 2 rows "
                                       "of 3 values are 4 numbers"));
  std::vector<uint64_t> many = kIds;
  many.insert(many.begin() + 4, 4);
  EXPECT_EQ(rows.Check(0, many, Values(9, 2)),
            absl::InvalidArgumentError(
                "table \"t\": 9 rows, but max_rows_per_push is 8"));
  ASSERT_EQ(rows.Check(0, ids, gradients), absl::OkStatus());
  rows.Take(0, ids, gradients);
  EXPECT_EQ(rows.Check(0, ids, gradients),
            absl::InvalidArgumentError(
                "table \"t\": its rows were handed in before"));
  EXPECT_FALSE(rows.complete());
  EXPECT_TRUE(rows.Close());
  EXPECT_FALSE(rows.Close());
  EXPECT_EQ(rows.Check(1, {}, {}),
            absl::InvalidArgumentError("table \"u\": rows must be handed in "
                                       "before AwaitHeld and Contribute"));
}

TEST(RowGradientsTest, WithOnePsTheyAreLentUntilNobodyRefersToThem) {
  const Layout layout = MakeLayout(1);
  const Plan plan = PlanPush(layout, 16);
  RowGradients rows(&layout, &plan);
  const std::vector<uint64_t> ids = {3, 7, kLast};
  const std::vector<float> gradients = Values(3, 2);
  rows.Take(0, ids, gradients);
  rows.Take(1, {}, {});
  EXPECT_TRUE(rows.complete());
  rows.Close();
  ASSERT_EQ(rows.num_parts(0), 2);
  auto pieces = std::make_unique<std::vector<TensorPiece>>(rows.PiecesOf(0, 1));
  ASSERT_THAT(*pieces, SizeIs(1));
  const TensorPiece& piece = pieces->front();
  EXPECT_EQ(piece.variable, "t");
  EXPECT_THAT(piece.shape, IsEmpty());
  EXPECT_EQ(piece.encoding, proto::EXACT);
  EXPECT_THAT(IdsOf(*piece.rows), ElementsAre(kLast));
  EXPECT_THAT(FloatsOf(piece), ElementsAre(Value(2, 0), Value(2, 1)));
  EXPECT_EQ(piece.data.spans()[0].data,
            reinterpret_cast<const char*>(gradients.data() + 4));
  std::thread sender([&] { pieces.reset(); });
  rows.AwaitReturn();
  EXPECT_EQ(pieces, nullptr);
  sender.join();
}

TEST(RowGradientsTest, WithSeveralPsEachIsSentItsOwn) {
  constexpr uint32_t kPs = 3;
  const Layout layout = MakeLayout(kPs);
  const Plan plan = PlanPush(layout, 24);
  RowGradients rows(&layout, &plan);
  std::vector<float> gradients = Values(kIds.size(), 3);
  rows.Take(1, kIds, gradients);
  rows.Close();
  // What is sent is a copy.
  std::fill(gradients.begin(), gradients.end(), 0);
  size_t found = 0;
  for (uint32_t ps = 0; ps < kPs; ++ps) {
    EXPECT_GE(rows.num_parts(ps), 1);
    for (uint32_t part = 0; part < rows.num_parts(ps); ++part) {
      for (const TensorPiece& piece : rows.PiecesOf(ps, part)) {
        EXPECT_EQ(piece.variable, "u");
        const std::vector<float> values = FloatsOf(piece);
        const std::vector<uint64_t> ids = IdsOf(*piece.rows);
        EXPECT_LE(ids.size(), 2);
        ASSERT_EQ(values.size(), 3 * ids.size());
        for (size_t i = 0; i < ids.size(); ++i, ++found) {
          EXPECT_EQ(PsOf(ids[i], kPs), ps);
          const size_t row =
              std::find(kIds.begin(), kIds.end(), ids[i]) - kIds.begin();
          for (size_t e = 0; e < 3; ++e) {
            EXPECT_EQ(values[3 * i + e], Value(row, e)) << ids[i];
          }
        }
      }
    }
  }
  EXPECT_EQ(found, kIds.size());
}

TEST(RowGradientsTest, EveryPsHasAPart) {
  const Layout layout = MakeLayout(2);
  const Plan plan = PlanPush(layout, 1 << 20);
  RowGradients rows(&layout, &plan);
  rows.Close();
  EXPECT_EQ(rows.num_parts(0), 0);  // it has "v"
  ASSERT_EQ(rows.num_parts(1), 1);
  EXPECT_THAT(rows.PiecesOf(1, 0), IsEmpty());
}

// A ps's answer to the ranges: Value(i, e) for row i of `ids`.
std::vector<TensorPiece> AnswerTo(
    const google::protobuf::RepeatedPtrField<proto::ReadRange>& ranges,
    const std::vector<uint64_t>& ids) {
  std::vector<TensorPiece> pieces;
  for (const proto::ReadRange& range : ranges) {
    TensorPiece& piece = pieces.emplace_back();
    piece.variable = range.variable();
    piece.rows.emplace();
    const size_t length = range.variable() == "t" ? 2 : 3;
    std::string bytes;
    for (const uint64_t id : IdsOf(range.rows())) {
      const size_t row = std::find(ids.begin(), ids.end(), id) - ids.begin();
      for (size_t e = 0; e < length; ++e) {
        const float value = Value(row, e);
        bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
    }
    piece.data = Buffer::FromString(std::move(bytes));
  }
  return pieces;
}

TEST(RowReadsTest, WhatIsWantedOfNoTableIsRefused) {
  const Layout layout = MakeLayout(1);
  Parameters into;
  EXPECT_EQ(CheckWantedRows(layout, into), absl::OkStatus());
  into.WantRows(1, kIds);
  EXPECT_EQ(CheckWantedRows(layout, into), absl::OkStatus());
  into.WantRows(2, {});
  EXPECT_EQ(CheckWantedRows(layout, into),
            absl::InvalidArgumentError("there is no table 2, only 2"));
}

TEST(RowReadsTest, RowsComeToTheirPlaces) {
  for (const uint32_t num_ps : {1, 3}) {
    const Layout layout = MakeLayout(num_ps);
    const Plan plan = PlanPull(layout, 24);
    Parameters into;
    into.WantRows(0, kIds);
    into.WantRows(1, absl::MakeConstSpan(kIds).first(3));
    const RowReads reads(&layout, &plan, /*ask_all=*/false, &into);
    reads.Prepare();
    for (uint32_t ps = 0; ps < num_ps; ++ps) {
      for (uint32_t part = 0; part < reads.num_parts(ps); ++part) {
        proto::PullRequest request;
        reads.AddRanges(ps, part, request.mutable_ranges());
        EXPECT_EQ(request.ranges(0).encoding(), proto::EXACT);
        EXPECT_EQ(request.ranges(0).size(), 0);
        EXPECT_EQ(reads.Take(ps, part, AnswerTo(request.ranges(), kIds)),
                  absl::OkStatus());
      }
    }
    EXPECT_THAT(into.RowsOf(0), ElementsAreArray(Values(kIds.size(), 2)));
    EXPECT_THAT(into.RowsOf(1), ElementsAreArray(Values(3, 3)));
  }
}

// As gRPC may deliver them.
TEST(RowReadsTest, ValuesMayBeCutAnywhere) {
  const Layout layout = MakeLayout(2);
  const Plan plan = PlanPull(layout, 1 << 20);
  Parameters into;
  into.WantRows(1, kIds);
  const RowReads reads(&layout, &plan, /*ask_all=*/false, &into);
  reads.Prepare();
  for (uint32_t ps = 0; ps < 2; ++ps) {
    proto::PullRequest request;
    reads.AddRanges(ps, 0, request.mutable_ranges());
    std::vector<TensorPiece> answer = AnswerTo(request.ranges(), kIds);
    const Buffer whole = answer[0].data;
    Buffer cut = whole.Sub(0, 13);
    cut.Append(whole.Sub(13, 2));
    cut.Append(whole.Sub(15, whole.size() - 15));
    answer[0].data = cut;
    EXPECT_EQ(reads.Take(ps, 0, answer), absl::OkStatus());
  }
  EXPECT_THAT(into.RowsOf(1), ElementsAreArray(Values(kIds.size(), 3)));
}

TEST(RowReadsTest, WhatWasNotAskedForIsRefused) {
  const Layout layout = MakeLayout(1);
  const Plan plan = PlanPull(layout, 1 << 20);
  Parameters into;
  into.WantRows(0, kIds);
  const RowReads reads(&layout, &plan, /*ask_all=*/false, &into);
  reads.Prepare();
  proto::PullRequest request;
  reads.AddRanges(0, 0, request.mutable_ranges());
  const auto error = [&](auto spoil) {
    std::vector<TensorPiece> answer = AnswerTo(request.ranges(), kIds);
    spoil(&answer);
    const absl::Status status = reads.Take(0, 0, answer);
    EXPECT_TRUE(absl::IsInternal(status));
    return std::string(status.message());
  };
  using Answer = std::vector<TensorPiece>;
  const std::string asked =
      "8 rows of table \"t\" were requested, but arrived ";
  EXPECT_EQ(error([](Answer* answer) { answer->clear(); }),
            "1 ranges of rows were requested, but 0 tensors arrived");
  EXPECT_EQ(error([](Answer* answer) { answer->front().variable = "u"; }),
            absl::StrCat(asked, "as rows of \"u\""));
  EXPECT_EQ(error([](Answer* answer) { answer->front().rows.reset(); }),
            absl::StrCat(asked, "as elements of a variable"));
  EXPECT_EQ(error([](Answer* answer) {
              answer->front().dtype = proto::DATA_TYPE_UNSPECIFIED;
            }),
            absl::StrCat(asked, "as dtype 0"));
  EXPECT_EQ(
      error([](Answer* answer) { answer->front().encoding = proto::FLOAT16; }),
      absl::StrCat(asked, "in encoding ", proto::FLOAT16));
  EXPECT_EQ(error([](Answer* answer) {
              answer->front().data = answer->front().data.Sub(0, 60);
            }),
            absl::StrCat(asked, "in 60 bytes"));
}

TEST(RowReadsTest, APsWithoutAnythingMayBeAskedForItsVersion) {
  const Layout layout = MakeLayout(2);
  const Plan plan = PlanPull(layout, 1 << 20);
  Parameters into;
  EXPECT_EQ(RowReads(&layout, &plan, /*ask_all=*/false, &into).num_parts(1), 0);
  const RowReads reads(&layout, &plan, /*ask_all=*/true, &into);
  EXPECT_EQ(reads.num_parts(0), 0);  // it has "v"
  ASSERT_EQ(reads.num_parts(1), 1);
  proto::PullRequest request;
  reads.AddRanges(1, 0, request.mutable_ranges());
  EXPECT_THAT(request.ranges(), IsEmpty());
  EXPECT_EQ(reads.Take(1, 0, {}), absl::OkStatus());
}

}  // namespace
}  // namespace holdfast::client
