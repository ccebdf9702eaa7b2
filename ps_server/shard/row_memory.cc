// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/row_memory.h"

#include <utility>

#include "absl/numeric/bits.h"
#include "absl/status/statusor.h"

namespace holdfast {

std::shared_ptr<float> RowMemory::Take(size_t size, bool may_be_lent) {
  if (may_be_lent) {
    std::shared_ptr<float> shared = TakeShared(size * sizeof(float));
    if (shared != nullptr) return shared;
  }
  return std::shared_ptr<float>(new float[size],
                                std::default_delete<float[]>());
}

std::shared_ptr<float> RowMemory::TakeShared(size_t bytes) {
  // What TakeAtLeast takes.
  const auto size = static_cast<int64_t>(absl::bit_ceil(bytes));
  const auto has_room = [&] {
    return size <= max_shared_bytes_ - shared_bytes_->load();
  };
  if (arena_ == nullptr || size > max_shared_bytes_) return nullptr;
  if (!has_room()) {
    // Readers may have returned more than is known.
    arena_->Reclaim();
    if (!has_room()) return nullptr;
  }
  absl::StatusOr<std::shared_ptr<char>> piece = arena_->TakeAtLeast(bytes);
  if (!piece.ok()) return nullptr;
  *shared_bytes_ += size;
  auto* const values = reinterpret_cast<float*>(piece->get());
  return std::shared_ptr<float>(
      values, [piece = *std::move(piece), counter = shared_bytes_,
               size](const float*) mutable {
        piece.reset();
        *counter -= size;
      });
}

}  // namespace holdfast
