// SPDX-License-Identifier: Apache-2.0
#include "common/data/row_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace holdfast {
namespace {

// Rows from one cell to more than a chunk, over several chunks, in pieces that
// end anywhere in a chunk.
TEST(RowStoreTest, KeepsRows) {
  for (const int64_t cells : {1, 3, 1000, 3000000}) {
    RowStore store(cells);
    const int64_t rows = 3'000'000 / cells + 2;
    const int64_t piece = 700'000 / cells + 1;
    for (int64_t begin = 0; begin < rows; begin += piece) {
      const int64_t count = std::min(piece, rows - begin);
      std::vector<uint32_t> added(count * cells);
      for (int64_t i = 0; i < count; ++i) {
        added[i * cells] = begin + i;
        added[(i + 1) * cells - 1] = begin + i + 7 * (cells > 1);
      }
      store.Append(added);
    }
    ASSERT_EQ(store.rows(), rows);
    EXPECT_EQ(store.bytes(), rows * cells * 4);
    for (int64_t i = 0; i < rows; ++i) {
      ASSERT_EQ(store.Row(i)[0], i);
      ASSERT_EQ(store.Row(i)[cells - 1], i + 7 * (cells > 1));
    }
  }
}

TEST(RowStoreTest, ShowsRowsOfOthers) {
  const auto memory = std::make_shared<std::vector<uint32_t>>(12);
  for (uint32_t i = 0; i < 12; ++i) (*memory)[i] = i;
  const RowStore store(
      3, {reinterpret_cast<const uint8_t*>(memory->data()), 48}, memory);
  EXPECT_EQ(store.rows(), 4);
  EXPECT_EQ(store.bytes(), 48);
  EXPECT_FALSE(store.in_memory());
  EXPECT_EQ(store.Row(3), memory->data() + 9);
  EXPECT_EQ(store.Row(3)[2], 11);
}

}  // namespace
}  // namespace holdfast
