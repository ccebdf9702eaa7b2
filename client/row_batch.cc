// SPDX-License-Identifier: Apache-2.0
#include "client/row_batch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/tensor/norm.h"
#include "glog/logging.h"

namespace holdfast::client {
namespace {

// Bits of an id per pass of the sort. More bits mean fewer passes, but each
// would write to more places at a time than the L1 cache has lines for.
constexpr int kDigitBits = 8;
constexpr size_t kDigits = size_t{1} << kDigitBits;

}  // namespace

// A radix sort, with one pass for each digit in which ids differ: 3 for ids
// below 2^24.
void RowBatch::SortById() {
  uint64_t all_ones = ~uint64_t{0};
  uint64_t any_ones = 0;
  for (const Use& use : uses_) {
    all_ones &= use.id;
    any_ones |= use.id;
  }
  const uint64_t differing = all_ones ^ any_ones;
  sorted_.resize(uses_.size());
  for (int shift = 0; shift < 64; shift += kDigitBits) {
    if ((differing >> shift) % kDigits == 0) continue;
    std::array<uint32_t, kDigits> begins = {};
    for (const Use& use : uses_) ++begins[(use.id >> shift) % kDigits];
    uint32_t begin = 0;
    for (uint32_t& count : begins) {
      const uint32_t end = begin + count;
      count = begin;
      begin = end;
    }
    for (const Use& use : uses_) {
      sorted_[begins[(use.id >> shift) % kDigits]++] = use;
    }
    std::swap(uses_, sorted_);
  }
}

void RowBatch::Assign(absl::Span<const uint64_t> ids) {
  CHECK_LT(ids.size(), uint64_t{1} << 32);
  uses_.resize(ids.size());
  for (uint32_t i = 0; i < ids.size(); ++i) uses_[i] = {ids[i], i};
  SortById();
  // There are at most as many unique ids as ids. Whether the next id differs
  // cannot be predicted by the CPU, so it is always written, but only counts if
  // it does.
  unique_.resize(ids.size());
  begins_.resize(ids.size() + 1);
  inverse_.resize(ids.size());
  places_.resize(ids.size());
  size_t num_unique = 0;
  for (size_t i = 0; i < uses_.size(); ++i) {
    const Use& use = uses_[i];
    num_unique += i == 0 || uses_[i - 1].id != use.id;
    unique_[num_unique - 1] = use.id;
    begins_[num_unique] = static_cast<uint32_t>(i + 1);
    inverse_[use.place] = static_cast<uint32_t>(num_unique - 1);
    places_[i] = use.place;
  }
  unique_.resize(num_unique);
  begins_[0] = 0;
  begins_.resize(num_unique + 1);
}

void RowBatch::Sum(const float* gradients, size_t length, float* sums) const {
  // Gradients are stored in the order of the batch, and read in the order of
  // ids.
  constexpr size_t kAhead = 16;
  size_t ahead = 0;
  for (size_t row = 0; row < unique_.size(); ++row) {
    std::fill_n(sums, length, 0.0f);
    for (uint32_t i = begins_[row]; i < begins_[row + 1]; ++i) {
      for (; ahead < std::min<size_t>(i + kAhead, places_.size()); ++ahead) {
        const float* const next = gradients + places_[ahead] * length;
        for (size_t at = 0; at < length; at += 16) {
          __builtin_prefetch(next + at);
        }
      }
      const float* const gradient = gradients + places_[i] * length;
#pragma GCC ivdep
      for (size_t e = 0; e < length; ++e) sums[e] += gradient[e];
    }
    sums += length;
  }
}

void RowBatch::Spread(const float* rows, size_t length, float* values) const {
  // Rows are read in the order of the batch.
  constexpr size_t kAhead = 16;
  for (size_t i = 0; i < inverse_.size(); ++i) {
    const size_t ahead = std::min(i + kAhead, inverse_.size() - 1);
    const float* const next = rows + inverse_[ahead] * length;
    for (size_t at = 0; at < length; at += 16) __builtin_prefetch(next + at);
    std::memcpy(values, rows + inverse_[i] * length, length * sizeof(float));
    values += length;
  }
}

absl::Status CheckFiniteRows(absl::string_view table,
                             absl::Span<const uint64_t> ids, const float* rows,
                             size_t length) {
  if (AllFinite({rows, ids.size() * length})) return absl::OkStatus();
  size_t at = 0;
  while (std::isfinite(rows[at])) ++at;
  return absl::InvalidArgumentError(
      absl::StrCat("table \"", table, "\": element ", at % length, " of row ",
                   ids[at / length], " is ", rows[at]));
}

}  // namespace holdfast::client
