// SPDX-License-Identifier: Apache-2.0
#include "common/data/data_digest.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"

namespace holdfast {
namespace {

// The number of bytes between progress reports.
constexpr size_t kPiece = 16 << 20;
// Separates the positions from other uses of Philox ("dige").
constexpr uint32_t kPurpose = 0x64696765;

// A pseudorandom number below `end` (at least 1) that depends only on the
// arguments.
int64_t Below(int64_t end, uint64_t size, uint32_t block) {
  const std::array<uint32_t, 4> bits = Philox4x32(
      {block, 0, 0, kPurpose},
      {static_cast<uint32_t>(size), static_cast<uint32_t>(size >> 32)});
  const uint64_t word = uint64_t{bits[0]} << 32 | bits[1];
  return static_cast<int64_t>(word % static_cast<uint64_t>(end));
}

}  // namespace

DataDigest::DataDigest(int64_t total_bytes, const Options& options)
    : total_bytes_(total_bytes), options_(options) {}

void DataDigest::AddPart(absl::Span<const uint8_t> part) {
  if (!sampled()) return Update(part);
  const int64_t size = part.size();
  const int64_t block = options_.block_bytes;
  // In float64, because the product may be too large.
  const auto share = static_cast<int64_t>(static_cast<double>(options_.blocks) *
                                          static_cast<double>(size) /
                                          static_cast<double>(total_bytes_));
  const int64_t blocks = std::max<int64_t>(2, share);
  sha_.Update(absl::StrCat("sampled ", size, "\n"));
  if (size <= std::max(blocks, options_.blocks) * block) return Update(part);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = size / blocks * i;
    const int64_t room = size / blocks - block;
    int64_t place = begin + Below(room + 1, size, i);
    if (i == 0) place = 0;
    if (i == blocks - 1) place = size - block;
    Update(part.subspan(place, block));
  }
}

void DataDigest::Update(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const absl::Span<const uint8_t> piece = bytes.subspan(0, kPiece);
    sha_.Update(piece.data(), piece.size());
    if (options_.progress != nullptr) options_.progress->Add(piece.size());
    bytes.remove_prefix(piece.size());
  }
}

}  // namespace holdfast
