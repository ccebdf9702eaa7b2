// SPDX-License-Identifier: Apache-2.0
#include "ps_server/store/chunk_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "common/shared_memory/arena.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

TEST(ChunkPoolTest, ChunksAreAlignedToACacheLine) {
  ChunkPool pool;
  std::vector<std::shared_ptr<float>> chunks;
  for (const size_t elements : {1, 3, 17, 4096}) {
    chunks.push_back(pool.Take(elements));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(chunks.back().get()) % 64, 0u)
        << elements;
    // All of it is ours to write (a sanitizer watches).
    std::fill_n(chunks.back().get(), elements, 1.0f);
  }
}

TEST(ChunkPoolTest, CountsChunksInUseAndSpareOnes) {
  ChunkPool pool;
  EXPECT_EQ(pool.bytes(), 0);
  std::shared_ptr<float> chunk = pool.Take(10);
  const std::shared_ptr<float> other = pool.Take(5);
  EXPECT_EQ(pool.bytes(), (10 + 5) * 4);
  chunk = nullptr;
  EXPECT_EQ(pool.bytes(), (10 + 5) * 4);
  chunk = pool.Take(10);
  EXPECT_EQ(pool.bytes(), (10 + 5) * 4);
}

TEST(ChunkPoolTest, HugePagesAreWhole) {
  constexpr size_t kPage = 2 << 20;
  std::shared_ptr<float> kept;
  {
    ChunkPool pool;
    for (const size_t pages : {1, 1, 3}) {
      // With a tail behind them, too.
      for (const size_t more : {1, 1025, 300000}) {
        const size_t elements = pages * kPage / sizeof(float) + more;
        const std::shared_ptr<float> piece = pool.Take(elements);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.get()) % kPage, 0u);
        std::fill_n(piece.get(), elements, 2.0f);
      }
      const size_t elements = pages * kPage / sizeof(float);
      std::shared_ptr<float> chunk = pool.Take(elements);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(chunk.get()) % kPage, 0u);
      std::fill_n(chunk.get(), elements, 1.0f);
      kept = chunk;
    }
  }
  EXPECT_EQ(kept.get()[3 * kPage / sizeof(float) - 1], 1.0f);
}

TEST(ChunkPoolTest, MemoryIsUsedAgainForTheSameSize) {
  ChunkPool pool;
  std::shared_ptr<float> chunk = pool.Take(100);
  const float* const memory = chunk.get();
  chunk = nullptr;
  const std::shared_ptr<float> smaller = pool.Take(99);
  EXPECT_NE(smaller.get(), memory);
  EXPECT_EQ(pool.Take(100).get(), memory);
}

TEST(ChunkPoolTest, TakesNoFreshMemoryForWhatWasInUseAtOneTime) {
  ChunkPool pool;
  std::set<const float*> first;
  {
    std::vector<std::shared_ptr<float>> chunks;
    for (int i = 0; i < 5; ++i) chunks.push_back(pool.Take(64));
    for (const auto& chunk : chunks) first.insert(chunk.get());
  }
  EXPECT_EQ(first.size(), 5u);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<float>> chunks;
    for (int i = 0; i < 5; ++i) {
      chunks.push_back(pool.Take(64));
      EXPECT_EQ(first.count(chunks.back().get()), 1u);
    }
  }
}

TEST(ChunkPoolTest, WhatSomebodyRefersToIsNotHandedOut) {
  ChunkPool pool;
  std::shared_ptr<float> chunk = pool.Take(8);
  const std::shared_ptr<const float> reader = chunk;
  *chunk = 42;
  chunk = nullptr;
  const std::shared_ptr<float> next = pool.Take(8);
  EXPECT_NE(next.get(), reader.get());
  *next = 1;
  EXPECT_EQ(*reader, 42);
}

TEST(ChunkPoolTest, ReferencesMayOutliveThePool) {
  std::optional<ChunkPool> pool;
  pool.emplace();
  const std::shared_ptr<float> kept = pool->Take(8);
  { const std::shared_ptr<float> spare = pool->Take(8); }
  *kept = 42;
  pool.reset();
  EXPECT_EQ(*kept, 42);
}

// ---- Values in shared memory ----

SharedArena::Options SmallFiles() {
  SharedArena::Options options;
  options.name = "test";
  options.file_bytes = 4 << 20;
  return options;
}

TEST(ChunkPoolTest, ValuesLieInTheArenaAndNothingElse) {
  SharedArena arena(SmallFiles());
  ChunkPool pool(&arena);
  const bool shared = SharedArena::HugePagesWork();
  for (const size_t elements : {10, 1 << 19, (3 << 19) + 10}) {
    const size_t bytes = elements * sizeof(float);
    const auto values = pool.TakeValues(elements), other = pool.Take(elements);
    std::fill_n(values.get(), elements, 1.0f);
    EXPECT_EQ(arena.Find(values.get(), bytes).has_value(), shared) << elements;
    EXPECT_FALSE(arena.Find(other.get(), bytes).has_value()) << elements;
  }
  ChunkPool without;
  EXPECT_FALSE(arena.Find(without.TakeValues(10).get(), 40).has_value());
}

TEST(ChunkPoolTest, CountsValuesInTheArena) {
  SharedArena arena(SmallFiles());
  ChunkPool pool(&arena);
  const auto slot = pool.Take(16);
  auto values = pool.TakeValues(32);
  EXPECT_EQ(pool.bytes(), (16 + 32) * 4);
  values = nullptr;
  values = pool.TakeValues(32);
  EXPECT_EQ(pool.bytes(), (16 + 32) * 4);
}

TEST(ChunkPoolTest, ValuesArePrivateWhereTheArenaGetsNoMore) {
  SharedArena arena(SmallFiles());
  ChunkPool pool(&arena);
  const size_t elements = (4 << 20) / sizeof(float);
  const auto first = pool.TakeValues(elements);  // A file.
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto second = pool.TakeValues(elements);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_NE(second, nullptr);
  std::fill_n(second.get(), elements, 1.0f);
  EXPECT_FALSE(arena.Find(second.get(), 4).has_value());
  EXPECT_EQ(pool.bytes(), 2 * 4 << 20);
}

TEST(ChunkPoolTest, ValuesMayOutliveThePoolAndTheArena) {
  std::optional<SharedArena> arena;
  arena.emplace(SmallFiles());
  std::optional<ChunkPool> pool;
  pool.emplace(&*arena);
  const auto kept = pool->TakeValues(8);
  *kept = 42;
  pool.reset();
  arena.reset();
  EXPECT_EQ(*kept, 42);
}

// Two threads take, mark and give back memory, including memory that the other
// has taken. Memory that was handed out twice at a time would lose its mark.
TEST(ChunkPoolTest, ServesSeveralThreads) {
  ChunkPool pool;
  constexpr int kRounds = 20000;
  const auto work = [&pool](float mark) {
    std::shared_ptr<float> held;
    int torn = 0;
    for (int i = 0; i < kRounds; ++i) {
      std::shared_ptr<float> chunk = pool.Take(16);
      std::fill_n(chunk.get(), 16, mark);
      if (held != nullptr &&
          (held.get()[0] != mark || held.get()[15] != mark)) {
        ++torn;
      }
      held = std::move(chunk);
    }
    return torn;
  };
  int torn_by_other = 0;
  std::thread other([&] { torn_by_other = work(1); });
  EXPECT_EQ(work(2), 0);
  other.join();
  EXPECT_EQ(torn_by_other, 0);
}

}  // namespace
}  // namespace holdfast
