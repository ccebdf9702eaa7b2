// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/wanted_values.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/given_values.h"
#include "common/rpc/rpc_limits.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

// The maximum number of bytes that a range takes in a message, in addition to
// its values and the variable's name.
constexpr size_t kAroundRange = 64;

}  // namespace

absl::StatusOr<WantedValues> WantedValues::Of(
    std::unique_ptr<DenseStore> store) {
  WantedValues wanted;
  for (size_t i = 0; i < store->slices().size(); ++i) {
    const StoredSlice& slice = store->slices()[i];
    const proto::Variable& declared = slice.variable;
    if (!store->lacks_values(i)) continue;
    const auto [found, added] =
        wanted.by_name_.emplace(declared.name(), wanted.variables_.size());
    if (added) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                                NumElements(declared.shape()));
      if (absl::Status status =
              CheckGiven(declared.initializer().given(), elements);
          !status.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "variable \"", declared.name(), "\": ", status.message()));
      }
      const auto& digests = declared.initializer().given().sha256();
      wanted.variables_.push_back({declared.name(),
                                   static_cast<uint64_t>(elements),
                                   {digests.begin(), digests.end()},
                                   {}});
    }
    wanted.variables_[found->second].slices.push_back(i);
    const uint64_t end = NumGivenRanges(slice.begin + slice.size);
    for (uint64_t s = slice.begin / kGivenRange; slice.size > 0 && s < end;
         ++s) {
      wanted.missing_.insert({found->second, s});
    }
  }
  wanted.store_ = std::move(store);
  return wanted;
}

uint64_t WantedValues::SizeOf(const Variable& variable, uint64_t range) {
  return std::min(kGivenRange, variable.elements - range * kGivenRange);
}

absl::Status WantedValues::Add(const TensorPiece& piece) {
  const auto error = [&](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first values of variable \"", piece.variable, "\": ", what...));
  };
  const auto found = by_name_.find(piece.variable);
  if (found == by_name_.end()) return error("they are not given on this ps");
  const Variable& variable = variables_[found->second];
  const uint64_t range = piece.begin / kGivenRange;
  if (piece.begin % kGivenRange != 0 || piece.begin >= variable.elements) {
    return error("no range begins at element ", piece.begin);
  }
  const uint64_t size = SizeOf(variable, range);
  if (piece.encoding != proto::EXACT ||
      piece.data.size() != size * sizeof(float)) {
    return error(piece.data.size(), " bytes from element ", piece.begin,
                 ", expected the range of ", size, " elements, EXACT");
  }
  const auto missing = missing_.find({found->second, range});
  // If this shard holds no element of the range, it has no use for the values.
  if (missing == missing_.end()) return absl::OkStatus();
  if (GivenDigest(piece.data) != variable.digests[range]) {  // [V2]
    return error("elements ", piece.begin, " to ", piece.begin + size - 1,
                 " are not those that were declared (by SHA-256)");
  }
  Keep(variable, piece.begin, piece.data);
  missing_.erase(missing);
  return absl::OkStatus();
}

void WantedValues::Keep(const Variable& variable, uint64_t begin,
                        const Buffer& values) {
  const uint64_t end = begin + values.size() / sizeof(float);
  for (const size_t i : variable.slices) {
    const StoredSlice& slice = store_->slices()[i];
    uint64_t at = std::max(begin, slice.begin);
    const uint64_t last = std::min(end, slice.begin + slice.size);
    while (at < last) {
      const uint64_t chunk = (at - slice.begin) / kChunkElements;
      const uint64_t offset = (at - slice.begin) % kChunkElements;
      const uint64_t size = std::min(last - at, kChunkElements - offset);
      values.Sub((at - begin) * sizeof(float), size * sizeof(float))
          .CopyTo(store_->ValuesToLoad(i, chunk) + offset);
      at += size;
    }
  }
}

std::vector<proto::ReadRange> WantedValues::Next() {
  std::vector<proto::ReadRange> ranges;
  uint64_t bytes = 0;
  auto next = missing_.lower_bound(next_);
  const size_t most = std::min(missing_.size(), kMostRanges);
  while (ranges.size() < most) {
    if (next == missing_.end()) next = missing_.begin();
    const Variable& variable = variables_[next->first];
    const uint64_t size = SizeOf(variable, next->second);
    bytes += size * sizeof(float) + variable.name.size() + kAroundRange;
    if (!ranges.empty() && bytes > static_cast<uint64_t>(kPartBytes)) break;
    proto::ReadRange& range = ranges.emplace_back();
    range.set_variable(variable.name);
    range.set_begin(next->second * kGivenRange);
    range.set_size(size);
    next_ = {next->first, next->second + 1};
    ++next;
  }
  return ranges;
}

}  // namespace holdfast
