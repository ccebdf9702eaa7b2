// SPDX-License-Identifier: Apache-2.0

// The figures of a shard.
#include "ps_server/shard/shard_figures.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

class ShardFiguresTest : public ShardTest {
 protected:
  void Save(uint64_t number, uint64_t step) {
    ASSERT_TRUE(Ask(shard_, &Shard::Save, SaveOf(number, step)).status().ok());
  }
};

// Of MakeRestore's variables w has 4 elements, b has 2, and frozen, which is
// not trained, 1; momentum has one slot for each trained element.
constexpr uint64_t kValues = (4 + 2 + 1) * 4;
constexpr uint64_t kTrained = (4 + 2) * 4;

TEST_F(ShardFiguresTest, MemoryByKind) {
  EXPECT_EQ(shard_.figures().values, 0);
  Restore(MakeRestore(2, 2, /*momentum=*/true));
  ShardFigures figures = shard_.figures();
  EXPECT_EQ(figures.values, kValues);
  EXPECT_EQ(figures.slots, kTrained);
  EXPECT_EQ(figures.versions, 0);
  EXPECT_EQ(figures.pushes, 0);
  Stage(Whole(0, 1, 0, 1));
  EXPECT_EQ(shard_.figures().pushes, kTrained);
  // The previous version is spare memory for the version after the next.
  Commit(0, {{0, 1, 1}});
  EXPECT_EQ(shard_.figures().pushes, 0);
  EXPECT_EQ(shard_.figures().versions, kTrained);
  // A pin keeps a version, which is then not spare.
  ASSERT_TRUE(Pin().status().ok());
  Step(1, 1);
  Step(2, 1);
  EXPECT_EQ(shard_.figures().versions, 2 * kTrained);
}

TEST_F(ShardFiguresTest, BytesByEncoding) {
  proto::RestoreRequest restore = MakeRestore();
  // "w".
  restore.mutable_declaration()
      ->mutable_variables(0)
      ->mutable_compression()
      ->set_push(proto::FLOAT16);
  Restore(restore);
  PushPart part = Whole(0, 1, 0, 1);
  part.tensors[0].encoding = proto::FLOAT16;
  part.tensors[0].data = Buffer::FromString(std::string(8, '\0'));
  Stage(std::move(part));
  ShardFigures figures = shard_.figures();
  EXPECT_EQ(figures.received[proto::FLOAT16], 4 * 2);
  EXPECT_EQ(figures.received[proto::EXACT], 2 * 4);
  // A push with an unknown encoding is refused, and not counted.
  part = Whole(1, 1, 0, 1);
  part.tensors.resize(1);
  part.tensors[0].encoding = static_cast<proto::Encoding>(1000);
  EXPECT_FALSE(Push(std::move(part)).status().ok());
  EXPECT_EQ(shard_.figures().received, figures.received);

  EXPECT_EQ(figures.sent, ShardFigures::Bytes());
  proto::PullRequest pull = MakePull({"w", "b"});
  pull.mutable_ranges(1)->set_encoding(proto::BFLOAT16);
  ASSERT_TRUE(Ask(shard_, &Shard::Pull, pull).status().ok());
  figures = shard_.figures();
  EXPECT_EQ(figures.sent[proto::EXACT], 4 * 4);
  EXPECT_EQ(figures.sent[proto::BFLOAT16], 2 * 2);
}

// A second passes between two looks at the clock: each update that changes
// anything looks twice.
TEST_F(ShardFiguresTest, UpdatesAndTheirTime) {
  class TickingClock final : public Clock {
   public:
    absl::Time Now() const override { return now_ += absl::Seconds(1); }

   private:
    mutable absl::Time now_ = absl::UnixEpoch();
  };
  const TickingClock clock;
  Shard shard(MakeOptions(), &clock, &disk_);
  ASSERT_TRUE(Ask(shard, &Shard::Restore, MakeRestore()).status().ok());
  Answer<proto::PushResponse> pushed;
  shard.Push(Whole(0, 1, 0, 1), pushed.Catch());
  ASSERT_TRUE(pushed.status().ok());
  ASSERT_TRUE(
      Ask(shard, &Shard::Commit, MakeCommit(0, {{0, 1, 1}})).status().ok());
  ASSERT_TRUE(Ask(shard, &Shard::Commit, MakeCommit(1, {})).status().ok());
  EXPECT_EQ(shard.figures().updates, 2);
  EXPECT_EQ(shard.figures().update_time, absl::Seconds(1));
}

TEST_F(ShardFiguresTest, SharesOfCheckpoints) {
  Restore();
  Save(1, 0);
  clock_.Advance(absl::Seconds(3));
  proto::DataFile file;
  file.set_size(1234);
  disk_.saves.front().reply(file);
  disk_.saves.pop_front();
  Save(2, 0);
  disk_.FailSave(absl::ResourceExhaustedError("the disk is full"));
  // The share is no longer needed.
  Save(3, 0);
  disk_.FailSave(absl::AbortedError("abandoned"));
  const ShardFigures figures = shard_.figures();
  EXPECT_EQ(figures.saves, 1);
  EXPECT_EQ(figures.failed_saves, 1);
  EXPECT_EQ(figures.save_time, absl::Seconds(3));
  EXPECT_EQ(figures.save_bytes, 1234);
}

TEST(ShardFiguresReportTest, TellsTheCoordinatorSums) {
  ShardFigures figures;
  figures.values = 1;
  figures.slots = 2;
  figures.versions = 3;
  figures.pushes = 4;
  figures.limit = 5;
  figures.updates = 6;
  figures.update_time = absl::Milliseconds(500);
  figures.received = {10, 20, 30};
  figures.sent = {1, 2, 3};
  figures.save_time = absl::Seconds(7);
  figures.save_bytes = 8;
  figures.table_rows = 9;
  figures.by_table.resize(2);
  figures.by_table[0].set_name("t");
  figures.by_table[0].set_rows(9);
  figures.by_table[1].set_name("u");
  EXPECT_EQ(ToReport(figures).ShortDebugString(),
            "memory { values: 1 slots: 2 versions: 3 pushes: 4 limit: 5 } "
            "updates: 6 update_seconds: 0.5 received_bytes: 60 sent_bytes: 6 "
            "held_bytes: 1 save_seconds: 7 save_bytes: 8 table_rows: 9 "
            "tables { name: \"t\" rows: 9 } tables { name: \"u\" }");
}

}  // namespace
}  // namespace holdfast
