// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/row_memory.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/shared_memory/arena.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

constexpr size_t kRows = 1 << 14;  // elements
constexpr size_t kBytes = kRows * sizeof(float);

class RowMemoryTest : public testing::Test {
 protected:
  bool IsShared(const std::shared_ptr<float>& values) const {
    return arena_.Find(values.get(), kBytes).has_value();
  }

  SharedArena arena_{{"test"}};
};

TEST_F(RowMemoryTest, WhatMayBeLentIsInTheArena) {
  RowMemory memory(&arena_, 10 * kBytes);
  EXPECT_TRUE(IsShared(memory.Take(kRows, /*may_be_lent=*/true)));
  EXPECT_FALSE(IsShared(memory.Take(kRows, /*may_be_lent=*/false)));
  RowMemory without;
  EXPECT_FALSE(IsShared(without.Take(kRows, /*may_be_lent=*/true)));
}

TEST_F(RowMemoryTest, BeyondTheLimitMemoryIsPrivate) {
  std::vector<std::shared_ptr<float>> lent;
  {
    RowMemory memory(&arena_, 2 * kBytes);
    for (int i = 0; i < 2; ++i) lent.push_back(memory.Take(kRows, true));
    EXPECT_TRUE(IsShared(lent[0]) && IsShared(lent[1]));
    EXPECT_FALSE(IsShared(memory.Take(kRows, true)));
    lent.pop_back();
    lent.push_back(memory.Take(kRows, true));
    EXPECT_TRUE(IsShared(lent[1]));
    EXPECT_FALSE(IsShared(memory.Take(3 * kRows, true)));
  }
  // Readers may return rows after the job has gone.
  lent.clear();
}

TEST_F(RowMemoryTest, WhatReadersHaveReturnedIsUsedAgain) {
  std::vector<std::shared_ptr<float>> lent;
  int reclaimed = 0;
  arena_.set_reclaim([&] {
    ++reclaimed;
    lent.clear();
  });
  RowMemory memory(&arena_, kBytes);
  lent.push_back(memory.Take(kRows, true));
  reclaimed = 0;
  const std::shared_ptr<float> next = memory.Take(kRows, true);
  EXPECT_TRUE(IsShared(next));
  EXPECT_EQ(reclaimed, 1);
}

// Batches differ in their number of rows, but the arena keeps few pieces.
TEST_F(RowMemoryTest, OtherSizesUseTheSameMemory) {
  RowMemory memory(&arena_, 10 * kBytes);
  memory.Take(kRows, true);
  const int64_t bytes = arena_.bytes();
  for (size_t size = kRows / 2 + 1; size < kRows; size += 100) {
    EXPECT_TRUE(IsShared(memory.Take(size, true)));
  }
  EXPECT_EQ(arena_.bytes(), bytes);
}

}  // namespace
}  // namespace holdfast
