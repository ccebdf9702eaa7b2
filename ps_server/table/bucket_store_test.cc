// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/bucket_store.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(RowHeaderTest, StepAndCountAreApart) {
  RowHeader row;
  row.Set(RowHeader::kMaxStep, 3);
  EXPECT_EQ(row.step(), (uint64_t{1} << 40) - 1);
  EXPECT_EQ(row.count(), 3u);
  row.Set(7, RowHeader::kMaxCount);
  EXPECT_EQ(row.step(), 7u);
  EXPECT_EQ(row.count(), 16777215u);
  // The count stays at its maximum.
  row.Set(8, uint64_t{1} << 30);
  EXPECT_EQ(row.step(), 8u);
  EXPECT_EQ(row.count(), 16777215u);
}

TEST(RowSlabTest, RowsStayWhereTheyAre) {
  // 16 bytes of the header, 3 floats, and 4 to align the next row.
  RowSlab slab(3);
  EXPECT_EQ(slab.row_bytes(), 32u);
  std::vector<RowHeader*> rows;
  for (uint32_t i = 0; i < 10000; ++i) {
    ASSERT_EQ(slab.Take(), i);
    rows.push_back(slab.At(i));
    rows.back()->set_id(i);
    rows.back()->floats()[2] = static_cast<float>(i);
  }
  for (uint32_t i = 0; i < 10000; ++i) {
    EXPECT_EQ(slab.At(i), rows[i]);
    EXPECT_EQ(rows[i]->id(), i);
    EXPECT_EQ(rows[i]->floats()[2], i);
  }
  EXPECT_EQ(slab.bytes(), 10000 * 32);
}

TEST(RowSlabTest, FreedPlacesAreTakenFirst) {
  RowSlab slab(1);
  for (int i = 0; i < 5; ++i) slab.Take();
  slab.Free(1);
  slab.Free(3);
  EXPECT_EQ(slab.rows(), 3u);
  EXPECT_EQ(slab.free_rows(), 2u);
  EXPECT_EQ(slab.Take(), 3u);
  EXPECT_EQ(slab.Take(), 1u);
  EXPECT_EQ(slab.Take(), 5u);
  EXPECT_EQ(slab.rows(), 6u);
  EXPECT_EQ(slab.bytes(), 6 * 24);
}

// Slabs that are mapped: from 1 MiB.
TEST(RowSlabTest, LargeRows) {
  RowSlab slab(65536);
  for (uint32_t i = 0; i < 200; ++i) {
    RowHeader* const row = slab.At(slab.Take());
    row->set_id(i);
    row->floats()[65535] = static_cast<float>(i);
  }
  for (uint32_t i = 0; i < 200; ++i) {
    EXPECT_EQ(slab.At(i)->id(), i);
    EXPECT_EQ(slab.At(i)->floats()[65535], i);
  }
}

// All entries are in one bucket, whose index grows from nothing and is
// searched, with hashes that differ little or not at all in the bits that the
// index uses.
TEST(BucketIndexTest, FindsWhatIsThere) {
  for (const uint64_t differs :
       {uint64_t{1}, uint64_t{1} << 18, uint64_t{1} << 45, uint64_t{1} << 12}) {
    // Indexed by place.
    std::vector<uint64_t> hashes;
    std::map<uint32_t, uint64_t> there;
    BucketIndex index;
    std::mt19937_64 random(differs);
    constexpr uint32_t kNone = 0xffffffff;
    for (int i = 0; i < 3000; ++i) {
      if (there.empty() || random() % 3 != 0) {
        const uint64_t hash = random() % 64 * differs;
        const auto place = static_cast<uint32_t>(hashes.size());
        hashes.push_back(hash);
        there[place] = hash;
        index.Insert(
            hash, place, [&](uint32_t other) { return hashes[other]; },
            [](uint32_t) {});
      } else {
        const auto gone = std::next(there.begin(), random() % there.size());
        index.Erase(gone->second, gone->first);
        there.erase(gone);
      }
      ASSERT_EQ(index.size(), there.size());
    }
    for (uint32_t place = 0; place < hashes.size(); ++place) {
      EXPECT_EQ(index.Find(hashes[place], kNone,
                           [&](uint32_t other) { return other == place; }),
                there.count(place) == 0 ? kNone : place);
    }
    std::set<uint32_t> visited;
    index.ForEach([](uint32_t) {},
                  [&](uint32_t place) { visited.insert(place); });
    EXPECT_EQ(visited.size(), there.size());
    // A line of 64 bytes for 12 entries, of which growth leaves 5 in use.
    EXPECT_LE(index.bytes(),
              64 * (static_cast<int64_t>(hashes.size()) / 5 + 2));
  }
}

// The expected rows: by id, the step and the value.
using Rows = std::map<uint64_t, std::pair<uint64_t, float>>;

class Bench {
 public:
  explicit Bench(BucketRange buckets = {}) : store(1, buckets) {}

  void Write(uint64_t id, uint64_t step, float value) {
    const uint64_t hash = HashRowId(id);
    RowHeader* row = store.StripeOf(hash).Find(hash, id);
    if (row == nullptr) {
      row = store.StripeOf(hash).Insert(hash, id);
    } else {
      store.BeforeChange(hash, row);
    }
    row->Set(step, 1);
    row->floats()[0] = value;
  }
  void Erase(uint64_t id) {
    const uint64_t hash = HashRowId(id);
    store.BeforeChange(hash, store.StripeOf(hash).Find(hash, id));
    store.StripeOf(hash).Erase(hash, id);
  }
  // What ForEachHeld visits in the buckets of ids below 40.
  Rows Held(uint64_t version) const {
    std::set<uint32_t> buckets;
    for (uint64_t id = 0; id < 40; ++id) buckets.insert(BucketOfRow(id));
    Rows rows;
    for (const uint32_t bucket : buckets) {
      store.ForEachHeld(version, bucket, [&](const RowHeader* row) {
        EXPECT_EQ(BucketOfRow(row->id()), bucket);
        EXPECT_TRUE(
            rows.emplace(row->id(), std::pair(row->step(), row->floats()[0]))
                .second);
      });
    }
    return rows;
  }

  BucketStore store;
};

TEST(BucketStoreTest, FindsManyInTheirOrder) {
  Bench bench;
  for (uint64_t id = 0; id < 1000; ++id) bench.Write(id * id, 1, id);
  for (const size_t count : {0, 1, 15, 16, 17, 48, 777}) {
    std::vector<uint64_t> ids;
    for (size_t i = 0; i < count; ++i) ids.push_back(i * 7);
    size_t next = 0;
    bench.store.FindMany(ids, 20, [&](size_t i, const RowHeader* row) {
      ASSERT_EQ(i, next++);
      // Only squares were inserted.
      const auto root = static_cast<uint64_t>(std::sqrt(ids[i]) + 0.5);
      ASSERT_EQ(row != nullptr, root * root == ids[i] && root < 1000);
      if (row != nullptr) {
        EXPECT_EQ(row->floats()[0], root);
      }
    });
    EXPECT_EQ(next, count);
  }
}

TEST(BucketStoreTest, RowsMadeWhileOthersAreFound) {
  Bench bench;
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < 100000; ++id) ids.push_back(id * 3);
  bench.store.FindMany(ids, 20, [&](size_t i, const RowHeader* row) {
    EXPECT_EQ(row, nullptr);
    bench.Write(ids[i], 1, 1);
  });
  EXPECT_EQ(bench.store.rows(), 100000);
  bench.store.FindMany(ids, 20, [&](size_t i, const RowHeader* row) {
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->id(), ids[i]);
  });
}

TEST(BucketStoreTest, HeldVersionsByHand) {
  Bench bench;
  bench.Write(1, 1, 10);
  bench.Write(2, 1, 20);
  bench.store.Hold(1);
  bench.Write(1, 2, 11);
  bench.Write(3, 2, 30);
  bench.store.Hold(2);
  bench.Write(1, 3, 12);
  bench.Erase(2);
  bench.Write(2, 4, 22);
  EXPECT_THAT(bench.Held(1),
              ElementsAre(Pair(1, Pair(1, 10)), Pair(2, Pair(1, 20))));
  EXPECT_THAT(bench.Held(2),
              ElementsAre(Pair(1, Pair(2, 11)), Pair(2, Pair(1, 20)),
                          Pair(3, Pair(2, 30))));
  EXPECT_EQ(bench.store.FindHeld(1, 3), nullptr);
  EXPECT_EQ(bench.store.FindHeld(2, 2)->floats()[0], 20);
  EXPECT_GT(bench.store.held_bytes(), 0);
  // Copies of version 2 that version 1 needs stay.
  bench.store.Release(2);
  EXPECT_THAT(bench.Held(1),
              ElementsAre(Pair(1, Pair(1, 10)), Pair(2, Pair(1, 20))));
  bench.store.Release(1);
  EXPECT_EQ(bench.store.held_bytes(), 0);
}

TEST(BucketStoreTest, CopiesNothingButTheFirstChange_B11) {
  Bench bench;
  for (uint64_t id = 0; id < 1000; ++id) bench.Write(id, 1, 0);
  bench.store.Hold(1);
  EXPECT_EQ(bench.store.held_bytes(), 0);
  bench.Write(5, 2, 1);
  const int64_t one = bench.store.held_bytes();
  EXPECT_GT(one, 0);
  for (uint64_t step = 3; step < 100; ++step) bench.Write(5, step, step);
  // Rows that were made since then are not copied either.
  bench.Write(1000, 100, 1);
  bench.Write(1000, 101, 2);
  EXPECT_EQ(bench.store.held_bytes(), one);
}

// Random changes, holds and releases, against maps that are copied whole.
TEST(BucketStoreTest, HeldVersionsAreAsTheyWere_B11) {
  for (int seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Bench bench;
    Rows rows;
    std::map<uint64_t, Rows> held;
    for (uint64_t step = 1; step <= 60; ++step) {
      std::set<uint64_t> ids;
      for (int i = 0; i < 5; ++i) ids.insert(random() % 30);
      for (const uint64_t id : ids) {
        if (rows.count(id) == 0 || random() % 4 != 0) {
          const float value = static_cast<float>(random() % 1000);
          bench.Write(id, step, value);
          rows[id] = {step, value};
        } else {
          bench.Erase(id);
          rows.erase(id);
        }
      }
      if (random() % 3 == 0) {
        bench.store.Hold(step);
        held[step] = rows;
      }
      if (!held.empty() && random() % 4 == 0) {
        const auto gone = std::next(held.begin(), random() % held.size());
        bench.store.Release(gone->first);
        held.erase(gone);
      }
      for (const auto& [version, expected] : held) {
        EXPECT_EQ(bench.Held(version), expected) << seed << " " << step;
        for (uint64_t id = 0; id < 30; ++id) {
          const RowHeader* const row = bench.store.FindHeld(version, id);
          const auto found = expected.find(id);
          ASSERT_EQ(row != nullptr, found != expected.end());
          if (row != nullptr) {
            EXPECT_EQ(row->floats()[0], found->second.second);
          }
        }
      }
    }
    for (const auto& [version, unused] : held) bench.store.Release(version);
    EXPECT_EQ(bench.store.held_bytes(), 0);
    EXPECT_EQ(bench.store.rows(), static_cast<int64_t>(rows.size()));
  }
}

}  // namespace
}  // namespace holdfast
