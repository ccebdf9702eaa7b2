// SPDX-License-Identifier: Apache-2.0

// Checkpoints that contain only what changed (docs/protocol/tables.md, B15).
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/table/embedding_table.h"
#include "ps_server/table/testing/table_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

constexpr EmbeddingTable::Kind kRow = EmbeddingTable::Kind::kRow;
constexpr EmbeddingTable::Kind kCandidate = EmbeddingTable::Kind::kCandidate;

constexpr uint32_t kBucket = 300;

std::vector<uint64_t> IdsOfBucket(size_t count) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; ids.size() < count; ++id) {
    if (BucketOfRow(id) == kBucket) ids.push_back(id);
  }
  return ids;
}

// Step and count; 0 for a candidate, and the row's only value.
using Row = std::tuple<uint64_t, float>;
struct Bucket {
  std::map<uint64_t, Row> rows;
  std::map<uint64_t, Row> candidates;
  bool operator==(const Bucket& other) const {
    return rows == other.rows && candidates == other.candidates;
  }
};

// The decoded bytes of a bucket with rows of one float32.
struct Stored {
  StoredBucket counts;
  Bucket touched;
  std::vector<uint64_t> removed_rows;
  std::vector<uint64_t> removed_candidates;
};

Stored Read(const TableSnapshot& snapshot) {
  std::string bytes;
  Stored stored;
  stored.counts = snapshot.AppendBucket(kBucket, &bytes);
  const char* at = bytes.data();
  const auto next = [&at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    at += sizeof(value);
    return value;
  };
  for (uint64_t i = 0; i < stored.counts.rows; ++i) {
    const uint64_t id = next(uint64_t{0});
    const uint64_t step_and_count = next(uint64_t{0});
    stored.touched.rows[id] = {step_and_count, next(0.0f)};
  }
  for (uint64_t i = 0; i < stored.counts.candidates; ++i) {
    const uint64_t id = next(uint64_t{0});
    stored.touched.candidates[id] = {next(uint64_t{0}), 0.0f};
  }
  for (uint64_t i = 0; i < stored.counts.removed_rows; ++i) {
    stored.removed_rows.push_back(next(uint64_t{0}));
  }
  for (uint64_t i = 0; i < stored.counts.removed_candidates; ++i) {
    stored.removed_candidates.push_back(next(uint64_t{0}));
  }
  EXPECT_EQ(at, bytes.data() + bytes.size());
  return stored;
}

void Merge(const Stored& stored, Bucket* bucket) {
  for (const uint64_t id : stored.removed_rows) bucket->rows.erase(id);
  for (const uint64_t id : stored.removed_candidates) {
    bucket->candidates.erase(id);
  }
  for (const auto& [id, row] : stored.touched.rows) bucket->rows[id] = row;
  for (const auto& [id, row] : stored.touched.candidates) {
    bucket->candidates[id] = row;
  }
}

// The table's current content of the bucket.
Bucket Now(const EmbeddingTable& table) {
  Bucket bucket;
  for (const RowHeader* const row : table.Sorted(kRow, kBucket)) {
    bucket.rows[row->id()] = {row->step() << 24 | row->count(),
                              row->floats()[0]};
  }
  for (const RowHeader* const row : table.Sorted(kCandidate, kBucket)) {
    bucket.candidates[row->id()] = {row->step() << 24 | row->count(), 0.0f};
  }
  return bucket;
}

// Some checkpoints fail, so that the next has changes since an older one; some
// are read late, when the table has gone on.
TEST(TableChangesTest, BaseAndDeltasAreTheTable_B15) {
  const std::vector<uint64_t> ids = IdsOfBucket(40);
  int removed = 0;
  int to_candidate = 0;
  for (int seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto table = MakeEmbeddingTable(
        Declared(1, "min_count: 2 expire_after_steps: 8 max_rows: 163840"),
        "learning_rate: 1 sgd {}");
    table->KeepChanges();
    std::mt19937 random(seed);
    const auto steps = [&] {
      for (uint32_t s = random() % 20; s > 0; --s) {
        Gradients push;
        for (uint32_t n = random() % 8; n > 0; --n) {
          push[ids[random() % ids.size()]] = {static_cast<float>(random() % 9)};
        }
        Step(table.get(), {push}, Rate(1));
      }
    };
    Bucket merged;
    GlobalStep durable;
    for (int checkpoint = 0; checkpoint < 12; ++checkpoint) {
      steps();
      table->ForgetChanges(durable);
      const TableSnapshot snapshot = table->Snapshot(durable, true);
      const Bucket expected = Now(*table);
      steps();
      if (random() % 4 == 0) continue;
      const Stored stored = Read(snapshot);
      EXPECT_TRUE(snapshot.contents().changes);
      EXPECT_EQ(stored.counts.all_rows, expected.rows.size());
      EXPECT_EQ(stored.counts.all_candidates, expected.candidates.size());
      for (const auto& [id, row] : stored.touched.rows) {
        EXPECT_GT(std::get<0>(row) >> 24, durable.value());
        to_candidate += merged.candidates.count(id);
      }
      removed += stored.removed_rows.size();
      Merge(stored, &merged);
      ASSERT_TRUE(merged == expected);
      durable = snapshot.version();
    }
  }
  EXPECT_GT(removed, 100);
  EXPECT_GT(to_candidate, 100);
}

// Pushes of one id, one a step.
class OneBucketTest : public testing::Test {
 protected:
  void Push(uint64_t id) { Step(table_.get(), {{{id, {1}}}}, Rate(1)); }
  void PushNothing(int steps) {
    for (int i = 0; i < steps; ++i) Step(table_.get(), {}, Rate(1));
  }

  const std::vector<uint64_t> ids_ = IdsOfBucket(3);
  std::unique_ptr<EmbeddingTable> table_ = MakeEmbeddingTable(
      Declared(1, "expire_after_steps: 4"), "learning_rate: 1 sgd {}");
};

TEST_F(OneBucketTest, ACheckpointOfAllRowsTellsWhatWasRemovedToo_B15) {
  table_->KeepChanges();
  Push(ids_[0]);
  Push(ids_[1]);
  const TableSnapshot before = table_->Snapshot();
  EXPECT_FALSE(before.contents().since.has_value());
  PushNothing(10);
  Push(ids_[1]);
  const Stored all = Read(table_->Snapshot(before.version(), false));
  EXPECT_EQ(all.counts.rows, 1u);
  EXPECT_THAT(all.removed_rows, ElementsAre(ids_[0]));
}

TEST_F(OneBucketTest, WhatIsNotKnownIsNotTold_B15) {
  const auto has_all = [this](GlobalStep since) {
    const TableSnapshot snapshot = table_->Snapshot(since, true);
    const Stored stored = Read(snapshot);
    return !snapshot.contents().since.has_value() &&
           !snapshot.contents().changes && stored.removed_rows.empty() &&
           stored.touched == Now(*table_);
  };
  Push(ids_[0]);
  EXPECT_TRUE(has_all(GlobalStep(0))) << "nothing is kept";
  table_->KeepChanges();
  Push(ids_[1]);
  EXPECT_TRUE(has_all(GlobalStep(0))) << "one step was not seen";
  EXPECT_FALSE(has_all(GlobalStep(1)));
  EXPECT_FALSE(has_all(GlobalStep(2)));
  EXPECT_TRUE(has_all(GlobalStep(3))) << "it is not made yet";
  table_->ForgetChanges(GlobalStep(2));
  EXPECT_TRUE(has_all(GlobalStep(1)));
  EXPECT_FALSE(has_all(GlobalStep(2)));
}

// A row does not take memory of the log with each touch.
TEST_F(OneBucketTest, TooManyChangesAreForgotten_B15) {
  table_->KeepChanges();
  Gradients many;
  for (uint64_t id = 0; id < 20000; ++id) many[id] = {1};
  for (const uint64_t id : ids_) many[id] = {1};
  Step(table_.get(), {many}, Rate(1));
  EXPECT_FALSE(table_->Snapshot(GlobalStep(0), true).contents().changes);
  const int64_t bytes = table_->bytes();
  for (int i = 0; i < 3; ++i) {
    Push(ids_[0]);
    EXPECT_EQ(table_->bytes(), bytes + ChangeLog::kBytesPerId);
  }
  const TableSnapshot during = table_->Snapshot(GlobalStep(1), true);
  EXPECT_TRUE(during.contents().changes);

  PushNothing(10);
  EXPECT_EQ(table_->rows(), 0);
  EXPECT_EQ(table_->bytes(), bytes) << "the log is empty";
  EXPECT_FALSE(table_->Snapshot(during.version(), true).contents().changes);
  const Stored stored = Read(during);
  EXPECT_EQ(stored.touched.rows.size(), 1u) << "it has what it needs";
  EXPECT_EQ(stored.counts.all_rows, 3u);
}

}  // namespace
}  // namespace holdfast
