// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/stored_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {

absl::StatusOr<uint64_t> StoredTable::Take(const RowExtent::Source& source,
                                           const proto::StoredRows& stored) {
  HOLDFAST_ASSIGN_OR_RETURN(
      auto extent, RowExtent::Create(source, stored, declared_->row_length()));
  if (!extents_.empty() && extent.floats_per_row() != floats_per_row_) {
    return absl::DataLossError(
        absl::StrCat(source.path, ": rows of table \"", declared_->name(),
                     "\" cannot have ", extent.floats_per_row(),
                     " float32; those of "
                     "other buckets have ",
                     floats_per_row_));
  }
  if (extent.buckets().size() == 0) return 0;
  const uint64_t bytes = extent.bytes();
  floats_per_row_ = extent.floats_per_row();
  extents_.push_back(std::move(extent));
  return bytes;
}

absl::Status StoredTable::CheckCoverage() {
  std::sort(extents_.begin(), extents_.end(),
            [](const RowExtent& a, const RowExtent& b) {
              return a.buckets().begin < b.buckets().begin;
            });
  uint32_t end = 0;
  const auto check_next = [&](uint32_t begin) {
    if (begin == end) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("lacks buckets of table \"", declared_->name(),
                     "\", or has them twice: between ", std::min(begin, end),
                     " and ", std::max(begin, end)));
  };
  for (const RowExtent& extent : extents_) {
    HOLDFAST_RETURN_IF_ERROR(check_next(extent.buckets().begin));
    end = extent.buckets().end;
  }
  return check_next(kRowBuckets);
}

const RowExtent& StoredTable::ExtentOf(uint32_t bucket) const {
  // The last extent that begins at or before `bucket`.
  const auto after = std::upper_bound(extents_.begin(), extents_.end(), bucket,
                                      [](uint32_t b, const RowExtent& extent) {
                                        return b < extent.buckets().begin;
                                      });
  return *(after - 1);
}

bool StoredTable::ListsRemoved(BucketRange buckets) const {
  return std::all_of(extents_.begin(), extents_.end(),
                     [&](const RowExtent& extent) {
                       return extent.buckets().end <= buckets.begin ||
                              buckets.end <= extent.buckets().begin ||
                              extent.since().has_value();
                     });
}

}  // namespace holdfast
