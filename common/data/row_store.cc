// SPDX-License-Identifier: Apache-2.0
#include "common/data/row_store.h"

#include <algorithm>
#include <utility>

namespace holdfast {
namespace {

constexpr int64_t kChunkCells = 1 << 20;

}  // namespace

RowStore::RowStore(int64_t cells) : cells_(cells) {
  while ((cells_ << (chunk_bits_ + 1)) <= kChunkCells) ++chunk_bits_;
}

RowStore::RowStore(int64_t cells, absl::Span<const uint8_t> rows,
                   std::shared_ptr<const void> owner)
    : cells_(cells),
      chunk_bits_(62),
      rows_(static_cast<int64_t>(rows.size() / sizeof(uint32_t)) / cells),
      chunks_({reinterpret_cast<const uint32_t*>(rows.data())}),
      owner_(std::move(owner)) {}

void RowStore::Append(absl::Span<const uint32_t> rows) {
  const int64_t chunk_rows = int64_t{1} << chunk_bits_;
  while (!rows.empty()) {
    const int64_t used = rows_ & (chunk_rows - 1);
    if (used == 0) {
      // Not zero-initialized.
      own_chunks_.emplace_back(new uint32_t[chunk_rows * cells_]);
      chunks_.push_back(own_chunks_.back().get());
    }
    const int64_t count =
        std::min<int64_t>(chunk_rows - used, rows.size() / cells_);
    std::copy_n(rows.begin(), count * cells_,
                own_chunks_.back().get() + used * cells_);
    rows.remove_prefix(count * cells_);
    rows_ += count;
  }
}

}  // namespace holdfast
