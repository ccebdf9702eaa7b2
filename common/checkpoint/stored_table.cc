#include "common/checkpoint/stored_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {

absl::StatusOr<uint64_t> StoredTable::Take(const RowStretch::Source& source,
                                           const proto::StoredRows& stored) {
  auto stretch = RowStretch::Create(source, stored, declared_->row_length());
  if (!stretch.ok()) return stretch.status();
  if (!stretches_.empty() && stretch->floats_per_row() != floats_per_row_) {
    return absl::DataLossError(
        absl::StrCat(source.path, ": rows of table \"", declared_->name(),
                     "\" cannot have ", stretch->floats_per_row(),
                     " float32, those of "
                     "other buckets have ",
                     floats_per_row_));
  }
  if (stretch->buckets().size() == 0) return 0;
  const uint64_t bytes = stretch->bytes();
  floats_per_row_ = stretch->floats_per_row();
  stretches_.push_back(*std::move(stretch));
  return bytes;
}

absl::Status StoredTable::CheckCoverage() {
  std::sort(stretches_.begin(), stretches_.end(),
            [](const RowStretch& a, const RowStretch& b) {
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
  for (const RowStretch& stretch : stretches_) {
    absl::Status checked = check_next(stretch.buckets().begin);
    if (!checked.ok()) return checked;
    end = stretch.buckets().end;
  }
  return check_next(kRowBuckets);
}

const RowStretch& StoredTable::StretchOf(uint32_t bucket) const {
  // The last that begins at or before it.
  const auto after =
      std::upper_bound(stretches_.begin(), stretches_.end(), bucket,
                       [](uint32_t b, const RowStretch& stretch) {
                         return b < stretch.buckets().begin;
                       });
  return *(after - 1);
}

bool StoredTable::ListsRemoved(BucketRange buckets) const {
  return std::all_of(stretches_.begin(), stretches_.end(),
                     [&](const RowStretch& stretch) {
                       return stretch.buckets().end <= buckets.begin ||
                              buckets.end <= stretch.buckets().begin ||
                              stretch.since().has_value();
                     });
}

}  // namespace holdfast
