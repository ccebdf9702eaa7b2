#include "common/data/row_store.h"

#include <algorithm>

namespace holdfast {
namespace {

constexpr int64_t kChunkCells = 1 << 20;

}  // namespace

RowStore::RowStore(int64_t cells) : cells_(cells) {
  while ((cells_ << (chunk_bits_ + 1)) <= kChunkCells) ++chunk_bits_;
}

void RowStore::Append(absl::Span<const uint32_t> rows) {
  const int64_t chunk_rows = int64_t{1} << chunk_bits_;
  while (!rows.empty()) {
    const int64_t used = rows_ & (chunk_rows - 1);
    if (used == 0) {
      // Not set to zero first.
      chunks_.emplace_back(new uint32_t[chunk_rows * cells_]);
    }
    const int64_t count =
        std::min<int64_t>(chunk_rows - used, rows.size() / cells_);
    std::copy_n(rows.begin(), count * cells_,
                chunks_.back().get() + used * cells_);
    rows.remove_prefix(count * cells_);
    rows_ += count;
  }
}

}  // namespace holdfast
