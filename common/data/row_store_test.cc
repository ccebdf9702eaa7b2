#include "common/data/row_store.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

// Rows of one cell to those larger than a chunk, over several chunks.
TEST(RowStoreTest, KeepsRows) {
  for (const int64_t cells : {1, 3, 1000, 3000000}) {
    RowStore store(cells);
    const int64_t rows = 3'000'000 / cells + 2;
    for (int64_t i = 0; i < rows; ++i) {
      const absl::Span<uint32_t> row = store.Add();
      ASSERT_EQ(static_cast<int64_t>(row.size()), cells);
      row.front() = i;
      row.back() = i + 7 * (cells > 1);
    }
    ASSERT_EQ(store.rows(), rows);
    EXPECT_EQ(store.bytes(), rows * cells * 4);
    for (int64_t i = 0; i < rows; ++i) {
      ASSERT_EQ(store.Row(i)[0], i);
      ASSERT_EQ(store.Row(i)[cells - 1], i + 7 * (cells > 1));
    }
  }
}

TEST(RowStoreTest, ADroppedRowLeavesNothing) {
  const auto digest = [](bool drop) {
    RowStore store(2);
    for (uint32_t i = 0; i < 5; ++i) {
      if (drop && i == 3) {
        store.Add()[0] = 99;
        store.DropLast();
      }
      const absl::Span<uint32_t> row = store.Add();
      row[0] = i;
      row[1] = 2 * i;
    }
    Sha256 sha;
    store.AddTo(&sha);
    return sha.HexDigest();
  };
  EXPECT_EQ(digest(true), digest(false));
}

}  // namespace
}  // namespace holdfast
