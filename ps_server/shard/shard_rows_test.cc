// SPDX-License-Identifier: Apache-2.0

// Embedding tables in a shard: docs/protocol/tables.md.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensor/encoding.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/row_encoding.h"
#include "common/tensor/row_ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/shard.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kNumPs = 3;

// The id of row `i` of those that are on this ps, or on another.
uint64_t Id(uint64_t i, bool here = true) {
  for (uint64_t id = 0;; ++id) {
    const bool is_here = BucketsOfPs(kThisPs, kNumPs).Contains(BucketOfRow(id));
    if (is_here == here && i-- == 0) return id;
  }
}

TensorPiece Rows(const std::string& table, const std::vector<uint64_t>& ids,
                 const std::vector<float>& gradients) {
  TensorPiece piece;
  piece.variable = table;
  piece.rows.emplace();
  piece.rows->set_num_rows(ids.size());
  piece.rows->set_ids(EncodeRowIds(ids));
  piece.data = Bytes(gradients);
  return piece;
}

// Adds to the variables of `request` table "t" with rows of 2, first values 1,
// and at most 4 rows per push, and table "u" with rows of 1.
proto::RestoreRequest WithTables(proto::RestoreRequest request) {
  for (const char* const name : {"t", "u"}) {
    proto::EmbeddingTable& table = *request.mutable_declaration()->add_tables();
    table.set_name(name);
    table.set_row_length(*name == 't' ? 2 : 1);
    table.set_max_rows_per_push(4);
    table.mutable_initializer()->mutable_constant()->set_value(1);
  }
  return request;
}

template <typename Base>
class WithRows : public Base {
 protected:
  // A whole push: its dense gradients are 0.
  PushPart PushOf(uint32_t worker, uint64_t sequence, uint64_t step,
                  std::vector<TensorPiece> rows) {
    rows.push_back(Tensor("w", {2, 2}, {0, 0, 0, 0}));
    rows.push_back(Tensor("b", {2}, {0, 0}));
    return this->Part(worker, sequence, step, std::move(rows));
  }

  proto::PullRequest PullOf(const std::string& table,
                            const std::vector<uint64_t>& ids) {
    proto::PullRequest request;
    *request.mutable_sender() = Reader();
    proto::ReadRange& range = *request.add_ranges();
    range.set_variable(table);
    range.mutable_rows()->set_num_rows(ids.size());
    range.mutable_rows()->set_ids(EncodeRowIds(ids));
    return request;
  }

  std::vector<float> Read(const std::string& table,
                          const std::vector<uint64_t>& ids) {
    return this->Values(Ask(this->shard_, &Shard::Pull, PullOf(table, ids)), 0);
  }
};

using ShardRowsTest = WithRows<ShardTest>;
using AsynchronousShardRowsTest = WithRows<AsynchronousShardTest>;

TEST_F(ShardRowsTest, APullOfUnknownRowsMakesNothing_B1) {
  Restore(WithTables(MakeRestore()));
  const auto pull =
      Ask(shard_, &Shard::Pull, PullOf("t", {Id(0), Id(1), Id(2)}));
  EXPECT_THAT(Values(pull, 0), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_EQ(pull->tensors[0].variable, "t");
  EXPECT_TRUE(pull->tensors[0].rows.has_value());
  EXPECT_EQ(pull->version, GlobalStep(0));
  EXPECT_EQ(shard_.figures().table_rows, 0u);
  EXPECT_EQ(shard_.figures().tables, 0u);
}

TEST_F(ShardRowsTest, ACommitSumsTheRowsOfPushesThatCount_B6) {
  Restore(WithTables(MakeRestore()));
  Stage(PushOf(
      0, 1, 0,
      {Rows("t", {Id(0), Id(1)}, {1, 2, 3, 4}), Rows("u", {Id(5)}, {8})}));
  Stage(PushOf(1, 1, 0, {Rows("t", {Id(1), Id(2)}, {4, 4, 8, 8})}));
  // Not part of the step.
  Stage(PushOf(1, 2, 0, {Rows("t", {Id(0)}, {100, 100})}));
  proto::CommitRequest commit = MakeCommit(0, {{0, 1, 2}, {1, 1, 1}});
  commit.set_weight_divisor(4);
  EXPECT_EQ(Ask(shard_, &Shard::Commit, commit)->version(), 1u);
  // 1 - 0.5 x (2 g0 + g1) / 4
  EXPECT_THAT(Read("t", {Id(0), Id(1), Id(2), Id(3)}),
              ElementsAre(0.75f, 0.5f, -0.25f, -0.5f, 0, 0, 1, 1));
  EXPECT_THAT(Read("u", {Id(5)}), ElementsAre(-1));
  EXPECT_EQ(shard_.figures().table_rows, 4u);
  EXPECT_EQ(shard_.staged_bytes(), 0);
}

TEST_F(ShardRowsTest, AStepWithoutPushesIsAStepOfTheTablesToo) {
  Restore(WithTables(MakeRestore()));
  Stage(PushOf(0, 1, 0, {Rows("t", {Id(0)}, {2, 2})}));
  Commit(0, {{0, 1, 0}});
  EXPECT_THAT(Read("t", {Id(0)}), ElementsAre(1, 1)) << "its weight is 0";
  Stage(PushOf(0, 2, 1, {Rows("t", {Id(0)}, {2, 2})}));
  Commit(1, {{0, 2, 1}});
  const auto pull = Ask(shard_, &Shard::Pull, PullOf("t", {Id(0)}));
  EXPECT_EQ(pull->version, GlobalStep(2));
  EXPECT_THAT(Values(pull, 0), ElementsAre(0, 0));
}

TEST_F(ShardRowsTest, RowsExpireInStepsWithoutPushes_B8) {
  proto::RestoreRequest request = WithTables(MakeRestore());
  request.mutable_declaration()->mutable_tables(0)->set_expire_after_steps(2);
  Restore(request);
  Stage(PushOf(0, 1, 0, {Rows("t", {Id(0)}, {2, 2})}));
  Commit(0, {{0, 1, 1}});
  Commit(1, {});
  EXPECT_EQ(shard_.figures().table_rows, 1u);
  Commit(2, {});
  EXPECT_EQ(shard_.figures().table_rows, 0u);
}

TEST_F(ShardRowsTest, TellsOfEachTableWhatItHasDone) {
  proto::RestoreRequest request = WithTables(MakeRestore());
  request.mutable_declaration()->mutable_tables(0)->set_expire_after_steps(2);
  request.mutable_declaration()->mutable_tables(1)->set_min_count(2);
  EXPECT_THAT(shard_.figures().by_table, IsEmpty());
  Restore(request);
  Stage(PushOf(
      0, 1, 0,
      {Rows("t", {Id(0), Id(1)}, {1, 2, 3, 4}), Rows("u", {Id(5)}, {8})}));
  Commit(0, {{0, 1, 1}});
  Read("t", {Id(0), Id(1), Id(2)});
  Read("u", {Id(5)});
  // A pull that is refused has read nothing.
  EXPECT_FALSE(Ask(shard_, &Shard::Pull, PullOf("t", {Id(0, /*here=*/false)}))
                   .status()
                   .ok());
  const auto reports = [&] {
    std::vector<std::string> texts;
    for (const proto::TableReport& report : shard_.figures().by_table) {
      texts.push_back(report.ShortDebugString());
    }
    return texts;
  };
  EXPECT_THAT(reports(),
              ElementsAre("name: \"t\" rows: 2 reads: 3 hits: 2 admissions: 2",
                          "name: \"u\" candidates: 1 reads: 1"));
  // A version that is pinned is read as it was.
  const auto pin = Pin();
  ASSERT_TRUE(pin.status().ok());
  Commit(1, {});
  Commit(2, {});
  proto::PullRequest old = PullOf("t", {Id(0), Id(2)});
  old.set_exact_version(1);
  ASSERT_TRUE(Ask(shard_, &Shard::Pull, old).status().ok());
  EXPECT_THAT(
      reports(),
      ElementsAre("name: \"t\" reads: 5 hits: 3 admissions: 2 expirations: 2",
                  "name: \"u\" candidates: 1 reads: 1"));
}

// Totals are the process's: a roll-back does not reduce them.
TEST_F(ShardRowsTest, TotalsOfTablesOutliveAGeneration) {
  Restore(WithTables(MakeRestore()));
  Stage(PushOf(0, 1, 0, {Rows("t", {Id(0)}, {1, 2})}));
  Commit(0, {{0, 1, 1}});
  Read("t", {Id(0), Id(1)});
  for (const uint64_t generation : {2, 3}) {
    proto::RestoreRequest again = WithTables(MakeRestore());
    again.mutable_sender()->set_generation(generation);
    ASSERT_TRUE(Ask(shard_, &Shard::Restore, again).status().ok());
  }
  const std::vector<proto::TableReport> tables = shard_.figures().by_table;
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].ShortDebugString(),
            "name: \"t\" reads: 2 hits: 1 admissions: 1");
}

TEST_F(ShardRowsTest, TheRowsOfAPushComeInSeveralParts) {
  Restore(WithTables(MakeRestore()));
  std::vector<uint64_t> ids = {Id(0), Id(1), Id(2)};
  Stage(Part(0, 1, 0, {Rows("t", {ids[2]}, {6, 6})}, 2, 3));
  // Sent again.
  Stage(Part(0, 1, 0, {Rows("t", {ids[2]}, {6, 6})}, 2, 3));
  Stage(Part(0, 1, 0, {Rows("t", {ids[0], ids[1]}, {2, 2, 4, 4})}, 0, 3));
  PushPart last = PushOf(0, 1, 0, {});
  last.part = 1;
  last.num_parts = 3;
  const auto answer = Push(std::move(last));
  EXPECT_NE(answer->receipt(), 0u) << "it is here whole";
  Commit(0, {{0, 1, 1}});
  EXPECT_THAT(Read("t", ids), ElementsAre(0, 0, -1, -1, -2, -2));
}

TEST_F(ShardRowsTest, APushThatBeginsAnewLeavesNoRows) {
  Restore(WithTables(MakeRestore()));
  Stage(Part(0, 1, 0, {Rows("t", {Id(0)}, {2, 2})}, 0, 2));
  const int64_t bytes = shard_.staged_bytes();
  EXPECT_GT(bytes, 0);
  Stage(Part(0, 1, 0, {Rows("t", {Id(0)}, {2, 2})}, 0, 3));
  EXPECT_EQ(shard_.staged_bytes(), bytes);
  Stage(Part(0, 1, 0, {}, 1, 3));
  PushPart last = PushOf(0, 1, 0, {});
  last.part = 2;
  last.num_parts = 3;
  Stage(std::move(last));
  Commit(0, {{0, 1, 1}});
  EXPECT_THAT(Read("t", {Id(0)}), ElementsAre(0, 0));
  EXPECT_EQ(shard_.staged_bytes(), 0);
}

TEST_F(ShardRowsTest, RowsThatDoNotFitAreRefusedAndNothingKept) {
  Restore(WithTables(MakeRestore()));
  const auto refused = [&](TensorPiece rows,
                           const std::vector<std::string>& parts) {
    const auto answer = Push(Part(0, 1, 0, {std::move(rows)}, 0, 2));
    EXPECT_TRUE(Fails(answer.status(), kInvalid, parts));
    EXPECT_EQ(shard_.staged_bytes(), 0);
  };
  refused(Rows("x", {Id(0)}, {1, 1}),
          {"table \"x\" is not declared; tables: t, u"});
  refused(Rows("w", {Id(0)}, {1, 1}), {"table \"w\" is not declared"});
  refused(Rows("t", {Id(0)}, {1}), {"table \"t\"", "4 bytes for 1 rows of 2"});
  refused(Rows("t", {Id(0, /*here=*/false)}, {1, 1}),
          {"table \"t\"", "not on this ps"});
  refused(Rows("u", {Id(0), Id(1), Id(2), Id(3), Id(4)}, {1, 1, 1, 1, 1}),
          {"5 rows, but max_rows_per_push is 4"});
  TensorPiece claimed = Rows("t", {Id(0)}, {1, 1});
  claimed.rows->set_num_rows(1'000'000'000);
  refused(std::move(claimed), {"table \"t\"", "1000000000"});
  TensorPiece halves = Rows("t", {Id(0)}, {1, 1});
  halves.encoding = proto::FLOAT16;
  refused(std::move(halves), {"encoding 1, declared EXACT"});
  TensorPiece shaped = Rows("t", {Id(0)}, {1, 1});
  shaped.shape = {2};
  refused(std::move(shaped), {"no shape"});
}

TEST_F(ShardRowsTest, NeitherTwiceNorMoreThanDeclaredInAllParts) {
  Restore(WithTables(MakeRestore()));
  Stage(Part(0, 1, 0, {Rows("u", {Id(0), Id(2), Id(4)}, {1, 1, 1})}, 0, 4));
  EXPECT_TRUE(
      Fails(Push(Part(0, 1, 0, {Rows("u", {Id(3)}, {1})}, 1, 4)).status(),
            kInvalid, {"table \"u\"", "came after others"}));
  EXPECT_TRUE(Fails(
      Push(Part(0, 1, 0, {Rows("u", {Id(6), Id(7)}, {1, 1})}, 1, 4)).status(),
      kInvalid, {"5 rows, but max_rows_per_push is 4"}));
  EXPECT_TRUE(Fails(
      Push(Part(0, 1, 0,
                {Rows("t", {Id(6)}, {1, 1}), Rows("t", {Id(6)}, {1, 1})}, 1, 4))
          .status(),
      kInvalid, {"table \"t\""}));
  Stage(Part(0, 1, 0, {Rows("u", {Id(6)}, {1})}, 1, 4));
}

// A limit of what the job needs, and `bytes` for rows.
Shard::Options WithRoom(Shard::Options options, int64_t bytes,
                        const proto::RestoreRequest& request) {
  for (options.memory_limit_bytes = 1;; ++options.memory_limit_bytes) {
    const auto plan =
        PlanMemory(request.declaration(),
                   {request.slices().begin(), request.slices().end()}, kThisPs,
                   options.memory_limit_bytes);
    if (plan.ok() && plan->table_bytes == bytes) return options;
  }
}

TEST_F(ShardRowsTest, ATableThatIsFullRefusesThePush_B13) {
  const proto::RestoreRequest request = WithTables(MakeRestore());
  // One row of "u" takes up to 34.
  Shard shard(WithRoom(MakeOptions(), 100, request), &clock_, nullptr);
  ASSERT_TRUE(Ask(shard, &Shard::Restore, request).status().ok());
  const auto push = [&](uint32_t worker, std::vector<uint64_t> ids) {
    Answer<proto::PushResponse> answer;
    shard.Push(PushOf(worker, 1, 0,
                      {Rows("u", ids, std::vector<float>(ids.size(), 1))}),
               answer.Catch());
    return answer.status();
  };
  EXPECT_TRUE(Fails(push(0, {Id(0), Id(1), Id(2)}), kNotReady,
                    {"table \"u\" is full", "3 more of 34 bytes", "100",
                     "/job:worker/task:0"}));
  EXPECT_TRUE(push(0, {Id(0)}).ok());
  EXPECT_TRUE(push(1, {Id(1)}).ok());
  EXPECT_TRUE(push(1, {Id(1)}).ok()) << "it was acknowledged before";
  Answer<proto::PushResponse> third;
  shard.Push(PushOf(1, 2, 0, {Rows("t", {Id(9)}, {1, 1})}), third.Catch());
  EXPECT_TRUE(Fails(third.status(), kNotReady, {"table \"t\" is full"}))
      << "it shares the room with the other";
  EXPECT_TRUE(Ask(shard, &Shard::Commit, MakeCommit(0, {{0, 1, 1}, {1, 1, 1}}))
                  .status()
                  .ok());
  EXPECT_EQ(shard.figures().table_rows, 2u);
}

TEST_F(ShardRowsTest, RowsThatExistNeedNoRoom_B13) {
  const proto::RestoreRequest request = WithTables(MakeRestore());
  // Two rows of "u" take 24 bytes each, and 64 for the index of a bucket. Of
  // the remaining 40, a further row may take up to 34.
  Shard shard(WithRoom(MakeOptions(), 216, request), &clock_, nullptr);
  ASSERT_TRUE(Ask(shard, &Shard::Restore, request).status().ok());
  const auto push = [&](uint32_t worker, uint64_t sequence,
                        std::vector<uint64_t> ids) {
    Answer<proto::PushResponse> answer;
    shard.Push(PushOf(worker, sequence, sequence - 1,
                      {Rows("u", ids, std::vector<float>(ids.size(), 1))}),
               answer.Catch());
    return answer.status();
  };
  ASSERT_TRUE(push(0, 1, {Id(0), Id(1)}).ok());
  ASSERT_TRUE(
      Ask(shard, &Shard::Commit, MakeCommit(0, {{0, 1, 1}})).status().ok());
  ASSERT_EQ(shard.figures().table_rows, 2u);

  EXPECT_TRUE(push(0, 2, {Id(0)}).ok());
  EXPECT_TRUE(Fails(push(1, 2, {Id(1), Id(2), Id(3)}), kNotReady,
                    {"table \"u\" is full", "2 more of 34 bytes"}));
  EXPECT_TRUE(push(1, 2, {Id(1), Id(2)}).ok());
}

TEST_F(ShardRowsTest, APinHoldsTheRowsOfItsVersion_B11) {
  Restore(WithTables(MakeRestore()));
  Stage(PushOf(0, 1, 0, {Rows("t", {Id(0)}, {2, 2})}));
  Commit(0, {{0, 1, 1}});
  const auto first = Pin();
  Stage(PushOf(0, 2, 1, {Rows("t", {Id(0), Id(1)}, {2, 2, 2, 2})}));
  Commit(1, {{0, 2, 1}});
  const auto again = PinVersion(1);
  EXPECT_TRUE(again.status().ok());
  const auto pinned = [&] {
    proto::PullRequest request = PullOf("t", {Id(0), Id(1)});
    request.set_exact_version(1);
    return Ask(shard_, &Shard::Pull, request);
  };
  EXPECT_THAT(Values(pinned(), 0), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(Read("t", {Id(0), Id(1)}), ElementsAre(-1, -1, 0, 0));
  Unpin(first->pin());
  EXPECT_THAT(Values(pinned(), 0), ElementsAre(0, 0, 1, 1));
  Unpin(again->pin());
  EXPECT_TRUE(Fails(pinned().status(), kNotFound, {"version 1"}));
  Pin();
  End(proto::FAILED, "(test)");
}

TEST_F(ShardRowsTest, NoFurtherVersionIsPinnedWhereCopiesTakeTooMuch) {
  const proto::RestoreRequest request = WithTables(MakeRestore());
  Shard shard(WithRoom(MakeOptions(), 216, request), &clock_, nullptr);
  ASSERT_TRUE(Ask(shard, &Shard::Restore, request).status().ok());
  const auto step = [&](uint64_t step) {
    Answer<proto::PushResponse> answer;
    shard.Push(PushOf(0, step + 1, step, {Rows("u", {Id(0)}, {1})}),
               answer.Catch());
    EXPECT_TRUE(answer.status().ok());
    Ask(shard, &Shard::Commit, MakeCommit(step, {{0, step + 1, 1}}));
  };
  const auto pin = [&](uint64_t version) {
    proto::PinRequest pin;
    *pin.mutable_sender() = Reader();
    pin.set_version(version);
    pin.set_hold_ms(1000);
    return Ask(shard, &Shard::Pin, pin);
  };
  step(0);
  const auto first = pin(1);
  ASSERT_TRUE(first.status().ok());
  step(1);
  EXPECT_TRUE(Fails(pin(2).status(), kExhausted,
                    {"cannot pin another version", "bytes, of 11 "}));
  EXPECT_TRUE(pin(1).status().ok()) << "it is held already";
  proto::UnpinRequest unpin;
  *unpin.mutable_sender() = Reader();
  for (uint64_t id = first->pin(); id <= first->pin() + 1; ++id) {
    unpin.set_pin(id);
    EXPECT_TRUE(Ask(shard, &Shard::Unpin, unpin).status().ok());
  }
  EXPECT_TRUE(pin(2).status().ok());
}

TEST_F(ShardRowsTest, APullWaitsForItsVersion) {
  Restore(WithTables(MakeRestore()));
  proto::PullRequest request = PullOf("t", {Id(0)});
  request.set_min_version(1);
  request.set_wait_ms(1000);
  const auto pull = Ask(shard_, &Shard::Pull, request);
  EXPECT_FALSE(pull.came());
  Stage(PushOf(0, 1, 0, {Rows("t", {Id(0)}, {2, 2})}));
  Commit(0, {{0, 1, 1}});
  EXPECT_THAT(Values(pull, 0), ElementsAre(0, 0));
}

TEST_F(ShardRowsTest, RowsThatCannotBeReadAreToldAtOnce) {
  Restore(WithTables(MakeRestore()));
  const auto refused = [&](proto::PullRequest request, absl::StatusCode code,
                           const std::vector<std::string>& parts) {
    request.set_min_version(1);
    request.set_wait_ms(1000);
    EXPECT_TRUE(
        Fails(Ask(shard_, &Shard::Pull, request).status(), code, parts));
  };
  refused(PullOf("x", {Id(0)}), kNotFound, {"table \"x\" is not declared"});
  proto::PullRequest claimed = PullOf("t", {Id(0)});
  claimed.mutable_ranges(0)->mutable_rows()->set_num_rows(1'000'000'000);
  refused(claimed, kInvalid, {"table \"t\"", "1000000000 rows"});
  proto::PullRequest encoded = PullOf("t", {Id(0)});
  encoded.mutable_ranges(0)->set_encoding(proto::INT8);
  refused(encoded, kInvalid, {"EXACT, FLOAT16 or BFLOAT16"});
  std::vector<uint64_t> many(1'600'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = i;
  refused(PullOf("t", many), kInvalid, {"a pull of more than"});

  const auto read = [&](proto::PullRequest request) {
    return Ask(shard_, &Shard::Pull, request).status();
  };
  EXPECT_TRUE(Fails(read(PullOf("t", {Id(0, /*here=*/false)})), kInvalid,
                    {"table \"t\"", "not on this ps"}));
  proto::PullRequest broken = PullOf("t", {Id(0)});
  broken.mutable_ranges(0)->mutable_rows()->set_ids("\xff");
  EXPECT_TRUE(Fails(read(broken), kInvalid, {"table \"t\""}));
}

TEST_F(ShardRowsTest, GradientsComeAsDeclared) {
  proto::RestoreRequest request = WithTables(MakeRestore());
  request.mutable_declaration()->mutable_tables(0)->set_push(proto::INT8);
  Restore(request);
  TensorPiece rows = Rows("t", {Id(0), Id(1)}, {});
  rows.encoding = proto::INT8;
  rows.data = EncodeRows(proto::INT8, 2, std::vector<uint64_t>{Id(0), Id(1)},
                         std::vector<float>{254, -254, 0, 0}, {});
  Stage(PushOf(0, 1, 0, {rows}));
  Stage(PushOf(1, 1, 0, {Rows("t", {Id(1)}, {4, 4})}));
  Commit(0, {{0, 1, 1}, {1, 1, 1}});
  EXPECT_THAT(Read("t", {Id(0), Id(1)}), ElementsAre(-126, 128, -1, -1));
  rows.encoding = proto::BFLOAT16;
  EXPECT_TRUE(Fails(Push(PushOf(0, 2, 1, {rows})).status(), kInvalid,
                    {"table \"t\"", "declared INT8"}));
  rows.encoding = proto::INT8;
  rows.data = rows.data.Sub(0, 11);
  EXPECT_TRUE(Fails(Push(PushOf(0, 2, 1, {rows})).status(), kInvalid,
                    {"table \"t\"", "11 bytes"}));
}

TEST_F(ShardRowsTest, ValuesComeInHalves) {
  Restore(WithTables(MakeRestore()));
  proto::PullRequest request = PullOf("t", {Id(0)});
  request.mutable_ranges(0)->set_encoding(proto::FLOAT16);
  const auto pull = Ask(shard_, &Shard::Pull, request);
  EXPECT_EQ(pull->tensors[0].encoding, proto::FLOAT16);
  EXPECT_EQ(pull->tensors[0].data.size(), 2 * sizeof(uint16_t));
}

// What a checkpoint contains of "t": rows touched, and removed.
std::string SavedOf(const FakeDisk::SaveCall& save) {
  const TableSnapshot& table = save.tables[0];
  std::string bytes;
  StoredBucket all;
  for (uint32_t b = table.buckets().begin; b < table.buckets().end; ++b) {
    const StoredBucket bucket = table.AppendBucket(b, &bytes);
    all.rows += bucket.rows;
    all.removed_rows += bucket.removed_rows;
  }
  const TableSnapshot::Contents& contents = table.contents();
  return absl::StrCat(
      contents.changes ? "changed " : "all ", all.rows, ", removed ",
      contents.since.has_value() ? absl::StrCat(all.removed_rows) : "unknown");
}

TEST_F(ShardRowsTest, ACheckpointHasWhatChangedSinceTheDurableOne_B15) {
  proto::RestoreRequest request = WithTables(MakeRestore());
  request.mutable_declaration()->mutable_tables(0)->set_expire_after_steps(2);
  Restore(request);
  uint64_t number = 0;
  const auto save = [&](uint64_t step, uint64_t durable_step, bool changes) {
    proto::SaveRequest save = SaveOf(++number, step);
    save.set_durable_step(durable_step);
    save.set_changes(changes);
    EXPECT_TRUE(Ask(shard_, &Shard::Save, save).status().ok());
    const std::string saved = SavedOf(disk_.saves.front());
    disk_.FinishSave("file");
    return saved;
  };
  const auto step = [&](uint64_t step, std::vector<uint64_t> ids) {
    Stage(PushOf(0, step + 1, step,
                 {Rows("t", ids, std::vector<float>(2 * ids.size(), 1))}));
    Commit(step, {{0, step + 1, 1}});
  };
  step(0, {Id(0), Id(1), Id(2)});
  EXPECT_EQ(save(1, 0, false), "all 3, removed unknown");
  step(1, {Id(0)});
  EXPECT_EQ(save(2, 1, true), "changed 1, removed 0");
  step(2, {Id(3)});
  EXPECT_EQ(save(3, 1, true), "changed 2, removed 2")
      << "of step 1, as 2 failed";
  EXPECT_EQ(save(3, 2, true), "changed 1, removed 2");
  EXPECT_EQ(save(3, 2, true), "changed 1, removed 2") << "the same again";
  EXPECT_EQ(save(3, 2, false), "all 2, removed 2");
  EXPECT_EQ(save(3, 1, true), "all 2, removed unknown") << "it is forgotten";
}

TEST_F(ShardRowsTest, WhereAllCheckpointsHaveAllRowsNoRemovalIsKept) {
  proto::RestoreRequest request = WithTables(MakeRestore());
  request.mutable_declaration()->mutable_checkpoints()->set_max_deltas(0);
  Restore(request);
  Commit(0, {});
  proto::SaveRequest save = SaveOf(1, 1);
  Ask(shard_, &Shard::Save, save);
  disk_.FinishSave("file");
  Commit(1, {});
  save = SaveOf(2, 2);
  save.set_durable_step(1);
  save.set_changes(true);
  Ask(shard_, &Shard::Save, save);
  EXPECT_EQ(SavedOf(disk_.saves.front()), "all 0, removed unknown");
}

TEST_F(ShardRowsTest, AJobWithoutTablesHasNoRows) {
  Restore();
  EXPECT_TRUE(Fails(Push(Part(0, 1, 0, {Rows("t", {Id(0)}, {1, 1})})).status(),
                    kInvalid, {"the job has no tables"}));
}

TEST_F(AsynchronousShardRowsTest, AnApplicationAddsItsRows) {
  Restore(WithTables(MakeAsynchronous()));
  Stage(PushOf(0, 1, 0, {Rows("t", {Id(0)}, {2, 4})}));
  Stage(PushOf(1, 1, 0, {Rows("t", {Id(0), Id(1)}, {2, 2, 2, 2})}));
  EXPECT_EQ(Apply(1, 1)->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Read("t", {Id(0), Id(1)}), ElementsAre(0, 0, 0, 0));
  proto::ApplyRequest clipped = ApplyOf(0, 1);
  clipped.set_clip_factor(0.5f);
  EXPECT_EQ(Apply(clipped)->verdict(), proto::ACCEPTED);
  EXPECT_THAT(Read("t", {Id(0), Id(1)}), ElementsAre(-0.5f, -1, 0, 0));
  EXPECT_EQ(Apply(NothingOf(0, 2))->verdict(), proto::ACCEPTED);
  EXPECT_EQ(Ask(shard_, &Shard::Pull, PullOf("t", {Id(0)}))->version,
            GlobalStep(3));
}

}  // namespace
}  // namespace holdfast
