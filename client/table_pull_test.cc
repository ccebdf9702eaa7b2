// SPDX-License-Identifier: Apache-2.0

// Pulls that read rows of embedding tables.
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "client/pull.h"
#include "client/rpc.h"
#include "client/testing/table_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TablePullTest : public TableTest {
 protected:
  void Start(uint32_t num_ps, int64_t part_bytes, bool asynchronous = false,
             int64_t sent_part_bytes = 0) {
    pull_ = StartPull(
        MakeGeneration(num_ps, part_bytes, asynchronous, sent_part_bytes),
        GlobalStep(5), &into_);
  }
  void Want(const std::vector<uint64_t>& ids) { into_.WantRows(0, ids); }
  absl::Status Await() {
    EXPECT_TRUE(pull_->done());
    return pull_->Await(absl::InfinitePast());
  }

  Parameters into_;
  std::unique_ptr<Cluster::Pull> pull_;
};

TEST_F(TablePullTest, RowsComeFromEachPsAfterItsVariables) {
  const std::vector<uint64_t> ids = {0, 1, 2, 3, 4, 5, 6, 7};
  Want(ids);
  Start(2, 1 << 20);
  for (const uint32_t ps : {0, 1}) {
    EXPECT_FALSE(AnswerPull(ps, 5).ranges(0).has_rows());
    const proto::PullRequest rows = AnswerPull(ps, 5);
    ASSERT_THAT(rows.ranges(), SizeIs(1));
    EXPECT_EQ(rows.min_version(), 5);
    EXPECT_EQ(rows.ranges(0).variable(), "t");
    EXPECT_EQ(rows.ranges(0).size(), 0);
    for (const uint64_t id : IdsOf(rows.ranges(0).rows())) {
      EXPECT_EQ(PsOfBucket(BucketOfRow(id), 2), ps);
    }
  }
  EXPECT_EQ(Await(), absl::OkStatus());
  EXPECT_EQ(into_.version, GlobalStep(5));
  EXPECT_THAT(into_.Of(1), Each(5));
  EXPECT_THAT(into_.RowsOf(0), ElementsAreArray(Values(ids, 5)));
}

// Parts of 16 bytes: two rows each.
TEST_F(TablePullTest, RowsComeInParts) {
  const std::vector<uint64_t> ids = {0, 1, 2, 3, 4};
  Want(ids);
  Start(1, 16);
  int parts = 0;
  while (transport_.Has(rpc::kPull)) {
    EXPECT_FALSE(pull_->done());
    AnswerPull(0, 5);
    ++parts;
  }
  EXPECT_EQ(parts, 2 + 3);
  EXPECT_EQ(Await(), absl::OkStatus());
  EXPECT_THAT(into_.RowsOf(0), ElementsAreArray(Values(ids, 5)));
}

TEST_F(TablePullTest, TheSameRowsAreReadAgain) {
  const std::vector<uint64_t> ids = {7, 9};
  Want(ids);
  std::set<const float*> places;
  for (const uint64_t version : {5, 6}) {
    Start(1, 1 << 20);
    AnswerPull(0, version);
    AnswerPull(0, version);
    EXPECT_EQ(Await(), absl::OkStatus());
    EXPECT_THAT(into_.RowsOf(0), ElementsAreArray(Values(ids, version)));
    places.insert(into_.RowsOf(0).data());
  }
  EXPECT_THAT(places, SizeIs(1));
}

// [R7] applies to rows as well.
TEST_F(TablePullTest, MixesArePulledAgain) {
  const std::vector<uint64_t> ids = {IdOf(0, 2, 0)};
  Want(ids);
  Start(2, 1 << 20);
  AnswerPull(0, 5);  // variables
  AnswerPull(0, 6);  // the row
  EXPECT_EQ(AnswerPull(0, 6).min_version(), 6);
  AnswerPull(1, 7);
  EXPECT_FALSE(pull_->done());
  AnswerPull(0, 7);
  AnswerPull(0, 7);
  EXPECT_EQ(Await(), absl::OkStatus());
  EXPECT_EQ(into_.version, GlobalStep(7));
  EXPECT_THAT(into_.Of(0), Each(7));
  EXPECT_THAT(into_.RowsOf(0), ElementsAreArray(Values(ids, 7)));
}

TEST_F(TablePullTest, WhatIsNotLentComesInMorePartsAndTheRowsAgain) {
  const std::vector<uint64_t> ids = {1, 2};
  Want(ids);
  Start(1, 24, /*asynchronous=*/false, /*sent_part_bytes=*/8);
  transport_.Take(rpc::kPull).Answer(absl::OutOfRangeError("not lent"));
  AnswerPull(0, 5);
  int parts = 0;
  for (; transport_.Has(rpc::kPull); ++parts) AnswerPull(0, 5);
  EXPECT_EQ(parts, 3 + 1);
  EXPECT_EQ(Await(), absl::OkStatus());
  EXPECT_THAT(into_.RowsOf(0), ElementsAreArray(Values(ids, 5)));
}

TEST_F(TablePullTest, APinIsReadWithItsRows) {
  const std::vector<uint64_t> ids = {1, 2};
  Want(ids);
  pull_ =
      StartPullOfPinned(MakeGeneration(1, 1 << 20), {GlobalStep(4)}, &into_);
  AnswerPull(0, 4);
  EXPECT_EQ(AnswerPull(0, 4).exact_version(), 4);
  EXPECT_EQ(Await(), absl::OkStatus());
  EXPECT_THAT(into_.RowsOf(0), ElementsAreArray(Values(ids, 4)));
}

// Every ps is asked, so that all have the same version.
TEST_F(TablePullTest, RowsMayBePulledAlone) {
  const std::vector<uint64_t> ids = {IdOf(0, 2, 0)};
  for (const bool asynchronous : {false, true}) {
    Want(ids);
    into_.WantVariables(false);
    Start(2, 1 << 20, asynchronous);
    EXPECT_THAT(AnswerPull(0, 5).ranges(), SizeIs(1));
    EXPECT_THAT(AnswerPull(1, 5).ranges(), IsEmpty());
    EXPECT_THAT(transport_.names(), IsEmpty());
    EXPECT_EQ(Await(), absl::OkStatus());
    EXPECT_EQ(into_.version, GlobalStep(5));
    EXPECT_THAT(into_.RowsOf(0), ElementsAreArray(Values(ids, 5)));
    EXPECT_EQ(into_.size(), 0);
  }
}

// The ps may hold rows that are trained, so its version counts.
TEST_F(TablePullTest, AsynchronouslyAPsWithoutAnythingIsAskedForItsVersion) {
  Start(3, 1 << 20, /*asynchronous=*/true);
  AnswerPull(0, 9);
  AnswerPull(2, 8);
  EXPECT_FALSE(pull_->done());
  EXPECT_THAT(AnswerPull(1, 6).ranges(), IsEmpty());
  EXPECT_EQ(Await(), absl::OkStatus());
  EXPECT_EQ(into_.version, GlobalStep(6));
}

TEST_F(TablePullTest, SynchronouslyItIsNot) {
  Start(3, 1 << 20);
  AnswerPull(0, 5);
  AnswerPull(2, 5);
  EXPECT_EQ(Await(), absl::OkStatus());
}

// ps 0 is asked for the version; asynchronously, every ps is.
TEST_F(TablePullTest, WithoutVariablesTheVersionIsAskedFor) {
  RemoveVariables();
  Start(2, 1 << 20);
  EXPECT_THAT(AnswerPull(0, 6).ranges(), IsEmpty());
  EXPECT_THAT(transport_.names(), IsEmpty());
  EXPECT_EQ(Await(), absl::OkStatus());
  EXPECT_EQ(into_.version, GlobalStep(6));
  EXPECT_EQ(into_.size(), 0);

  Start(2, 1 << 20, /*asynchronous=*/true);
  EXPECT_THAT(AnswerPull(0, 9).ranges(), IsEmpty());
  EXPECT_THAT(AnswerPull(1, 7).ranges(), IsEmpty());
  EXPECT_EQ(Await(), absl::OkStatus());
  EXPECT_EQ(into_.version, GlobalStep(7));
}

// Rows have the version that ps 0 is asked for [R7].
TEST_F(TablePullTest, WithoutVariablesRowsHaveOneVersion) {
  RemoveVariables();
  const std::vector<uint64_t> ids = {IdOf(1, 2, 0)};
  Want(ids);
  Start(2, 1 << 20);
  AnswerPull(0, 5);
  AnswerPull(1, 6);  // the row
  EXPECT_FALSE(pull_->done());
  EXPECT_EQ(AnswerPull(0, 6).min_version(), 6);
  EXPECT_EQ(Await(), absl::OkStatus());
  EXPECT_EQ(into_.version, GlobalStep(6));
  EXPECT_THAT(into_.RowsOf(0), ElementsAreArray(Values(ids, 6)));
}

TEST_F(TablePullTest, RowsOfNoTableAreRefused) {
  into_.WantRows(1, {{3}});
  Start(1, 1 << 20);
  EXPECT_EQ(Await(), absl::InvalidArgumentError("there is no table 1, only 1"));
  into_ = Parameters();
  Want({3, 3});
  Start(1, 1 << 20);
  EXPECT_EQ(Await(), absl::InvalidArgumentError(
                         "table \"t\": row 3 is followed by row "
                         "3, but ids must be strictly increasing"));
  EXPECT_THAT(transport_.names(), IsEmpty());
}

TEST_F(TablePullTest, WrongRowsNamePsAndTable) {
  Want({IdOf(1, 2, 0)});
  Start(2, 1 << 20);
  AnswerPull(1, 5);
  auto rows = transport_.Take(rpc::kPull, 1);
  WithTensors<proto::PullResponse> response;
  response.message.set_version(5);
  response.tensors = PiecesAt(rows.request, 5);
  response.tensors[0].variable = "a";
  rows.Answer(response);
  EXPECT_EQ(Await(),
            absl::InternalError("ps 1: 1 rows of table \"t\" were "
                                "requested, but arrived as rows of \"a\""));
}

}  // namespace
}  // namespace holdfast::client
