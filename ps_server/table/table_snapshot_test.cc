// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/table_snapshot.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/thread_pool.h"
#include "gtest/gtest.h"
#include "ps_server/table/embedding_table.h"
#include "ps_server/table/testing/table_testing.h"

namespace holdfast {
namespace {

constexpr EmbeddingTable::Kind kRow = EmbeddingTable::Kind::kRow;
constexpr EmbeddingTable::Kind kCandidate = EmbeddingTable::Kind::kCandidate;

// The whole content of a snapshot, in the order of buckets.
std::string BytesOf(const TableSnapshot& snapshot) {
  std::string bytes;
  for (uint32_t b = snapshot.buckets().begin; b < snapshot.buckets().end; ++b) {
    snapshot.AppendBucket(b, &bytes);
  }
  return bytes;
}

// The same for the table's newest version.
std::string BytesOf(const EmbeddingTable& table) {
  std::string bytes;
  for (uint32_t b = table.buckets().begin; b < table.buckets().end; ++b) {
    for (const EmbeddingTable::Kind kind : {kRow, kCandidate}) {
      for (const RowHeader* const row : table.Sorted(kind, b)) {
        bytes.append(reinterpret_cast<const char*>(row),
                     sizeof(*row) + table.floats(kind) * sizeof(float));
      }
    }
  }
  return bytes;
}

// A table whose rows are made, removed and made again, and random pushes.
class TableSnapshotTest : public ::testing::Test {
 protected:
  // A push of ids below 4 `rows`.
  Gradients RandomPush(size_t rows) {
    Gradients push;
    while (push.size() < rows) {
      push[random_() % (4 * rows)] = {static_cast<float>(random_() % 9), 1};
    }
    return push;
  }
  static std::unique_ptr<EmbeddingTable> MakeTable(BucketRange buckets) {
    EmbeddingTable::Options options;
    options.buckets = buckets;
    return MakeEmbeddingTable(
        Declared(2, "min_count: 2 expire_after_steps: 8 max_rows: 32768"),
        "learning_rate: 0.1 adagrad {}", options);
  }

  std::mt19937 random_{3};
  // Few buckets, because a test looks at all of them often.
  std::unique_ptr<EmbeddingTable> table_ = MakeTable({200, 600});
};

TEST_F(TableSnapshotTest, BytesByHand) {
  const auto table = MakeEmbeddingTable(Declared(1, "min_count: 2"),
                                        "learning_rate: 1 sgd {}");
  const uint32_t bucket = BucketOfRow(0x0102);
  Step(table.get(), {{{0x0102, {1}}}}, Rate(1));
  const TableSnapshot before = table->Snapshot();
  Step(table.get(), {{{0x0102, {-1}}}}, Rate(1));
  const TableSnapshot after = table->Snapshot();

  // id; step << 24 | count.
  std::string bytes;
  StoredBucket counts = before.AppendBucket(bucket, &bytes);
  EXPECT_EQ(counts.rows, 0u);
  EXPECT_EQ(counts.candidates, 1u);
  EXPECT_EQ(bytes, std::string("\x02\x01\0\0\0\0\0\0\x01\0\0\x01\0\0\0\0", 16));
  bytes = "what was there ";
  counts = after.AppendBucket(bucket, &bytes);
  EXPECT_EQ(counts.rows, 1u);
  EXPECT_EQ(counts.candidates, 0u);
  EXPECT_EQ(bytes, "what was there " +
                       std::string("\x02\x01\0\0\0\0\0\0\x02\0\0\x02\0\0\0\0"
                                   "\0\0\x80\x3f",
                                   20));
  EXPECT_EQ(after.bytes(), 20u);
  EXPECT_EQ(after.version(), GlobalStep(2));
  EXPECT_EQ(after.declared().name(), "t");
}

TEST_F(TableSnapshotTest, IsTheVersionThatItWasMadeAt_B11) {
  std::vector<std::pair<TableSnapshot, std::string>> snapshots;
  int64_t most_held = 0;
  for (int step = 0; step < 60; ++step) {
    Step(table_.get(), {RandomPush(800), RandomPush(800)}, Rate(0.1f));
    if (random_() % 3 == 0) {
      snapshots.emplace_back(table_->Snapshot(), BytesOf(*table_));
      EXPECT_EQ(snapshots.back().first.bytes(), snapshots.back().second.size());
    }
    if (!snapshots.empty() && random_() % 4 == 0) {
      snapshots.erase(snapshots.begin() + random_() % snapshots.size());
    }
    for (const auto& [snapshot, bytes] : snapshots) {
      ASSERT_TRUE(BytesOf(snapshot) == bytes) << step;
    }
    most_held = std::max(most_held, table_->held_bytes());
  }
  EXPECT_GT(most_held, 0);
  snapshots.clear();
  Step(table_.get(), {}, Rate(0.1f));
  EXPECT_EQ(table_->held_bytes(), 0);
}

// Another thread copies while this one and helpers make steps, hold, read and
// release.
TEST_F(TableSnapshotTest, AnotherThreadCopiesBesideSteps_B11) {
  table_ = MakeTable({});
  // Enough rows that helpers are called.
  constexpr size_t kRows = 5000;
  ThreadPool threads(2, "helpers");
  ApplyRowsOptions options;
  options.threads = &threads;
  const auto step = [&] {
    const ReceivedRows rows = Received(table_->declared(), RandomPush(kRows));
    RowSum sum;
    sum.terms.push_back({{&rows}, 1});
    table_->ApplyStep(sum, Rate(0.1f), options);
  };
  for (int i = 0; i < 3; ++i) step();
  for (int round = 0; round < 3; ++round) {
    const std::string expected = BytesOf(*table_);
    std::string copied;
    std::thread copier([&copied, snapshot = table_->Snapshot()] {
      copied = BytesOf(snapshot);
    });
    for (int i = 0; i < 4; ++i) {
      step();
      const TableSnapshot other = table_->Snapshot();
      const uint64_t id = random_() % kRows;
      EXPECT_EQ(ReadRow(*table_, id).size(), 2u);
    }
    copier.join();
    EXPECT_TRUE(copied == expected);
  }
  step();
  EXPECT_EQ(table_->held_bytes(), 0);
}

TEST_F(TableSnapshotTest, EachCopyOfTheHandleHoldsIt) {
  Step(table_.get(), {RandomPush(800)}, Rate(0.1f));
  const std::string expected = BytesOf(*table_);
  std::optional<TableSnapshot> first = table_->Snapshot();
  std::optional<TableSnapshot> second = first;
  std::optional<TableSnapshot> another = table_->Snapshot();
  for (std::optional<TableSnapshot>* const gone : {&first, &another}) {
    std::thread([gone] { gone->reset(); }).join();
    Step(table_.get(), {RandomPush(800)}, Rate(0.1f));
    EXPECT_EQ(BytesOf(*second), expected);
  }
  second.reset();
  Step(table_.get(), {}, Rate(0.1f));
  EXPECT_EQ(table_->held_bytes(), 0);
}

TEST_F(TableSnapshotTest, MayOutliveTheTable) {
  for (int i = 0; i < 4; ++i) {
    Step(table_.get(), {RandomPush(800)}, Rate(0.1f));
  }
  const std::string expected = BytesOf(*table_);
  std::optional<TableSnapshot> snapshot = table_->Snapshot();
  Step(table_.get(), {RandomPush(800)}, Rate(0.1f));
  table_.reset();
  EXPECT_EQ(BytesOf(*snapshot), expected);
  snapshot.reset();
}

}  // namespace
}  // namespace holdfast
