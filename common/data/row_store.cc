#include "common/data/row_store.h"

#include <algorithm>

namespace holdfast {
namespace {

constexpr int64_t kChunkCells = 1 << 20;

}  // namespace

RowStore::RowStore(int64_t cells) : cells_(cells) {
  while ((cells_ << (chunk_bits_ + 1)) <= kChunkCells) ++chunk_bits_;
}

absl::Span<uint32_t> RowStore::Add() {
  const int64_t in_chunk = int64_t{1} << chunk_bits_;
  const int64_t chunk = rows_ >> chunk_bits_;
  if (chunk == static_cast<int64_t>(chunks_.size())) {
    chunks_.push_back(std::make_unique<uint32_t[]>(in_chunk * cells_));
  }
  ++rows_;
  return {const_cast<uint32_t*>(Row(rows_ - 1)), static_cast<size_t>(cells_)};
}

void RowStore::AddTo(Sha256* sha) const {
  const int64_t in_chunk = int64_t{1} << chunk_bits_;
  for (int64_t row = 0; row < rows_; row += in_chunk) {
    sha->Update(Row(row),
                std::min(in_chunk, rows_ - row) * cells_ * sizeof(uint32_t));
  }
}

}  // namespace holdfast
