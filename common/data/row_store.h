// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_ROW_STORE_H_
#define HOLDFAST_COMMON_DATA_ROW_STORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"

namespace holdfast {

// Rows of a fixed number of 32-bit cells: examples that are parsed once and
// read often. Rows are appended and kept in memory, or are in external memory,
// such as a mapped file.
//
// Thread-compatible while rows are added, then immutable and thread-safe.
class RowStore {
 public:
  // Makes an empty store. `cells` is the number of cells in a row, at least 1.
  explicit RowStore(int64_t cells);
  // Makes a store of the whole rows in `rows`, whose address is a multiple of
  // 4, and which `owner` keeps alive. No rows can be appended to it.
  RowStore(int64_t cells, absl::Span<const uint8_t> rows,
           std::shared_ptr<const void> owner);

  // Appends copies of `rows`, the cells of whole rows.
  void Append(absl::Span<const uint32_t> rows);

  int64_t rows() const { return rows_; }
  int64_t cells() const { return cells_; }
  const uint32_t* Row(int64_t row) const {
    return chunks_[row >> chunk_bits_] +
           (row & ((int64_t{1} << chunk_bits_) - 1)) * cells_;
  }
  bool in_memory() const { return owner_ == nullptr; }
  // The size of all rows, in bytes.
  int64_t bytes() const {
    return rows_ * cells_ * static_cast<int64_t>(sizeof(uint32_t));
  }

 private:
  const int64_t cells_;
  // A chunk has 2^chunk_bits_ rows: some MiB, so that little memory is unused
  // and rows are never moved.
  int chunk_bits_ = 0;
  int64_t rows_ = 0;
  std::vector<const uint32_t*> chunks_;
  std::vector<std::unique_ptr<uint32_t[]>> own_chunks_;
  std::shared_ptr<const void> owner_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_ROW_STORE_H_
