// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/table_rows.h"

#include <algorithm>

#include "common/tensor/row_bucket.h"

namespace holdfast {

absl::StatusOr<std::vector<uint64_t>> ReadRowIds(CheckpointReader* reader,
                                                 absl::string_view table) {
  std::vector<uint64_t> ids;
  ids.reserve(reader->CountRows(table, BucketRange()).rows);
  const absl::Status status =
      reader->ReadRows(table, BucketRange(), [&](const StoredRow& row) {
        if (!row.is_candidate) ids.push_back(row.id);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  std::sort(ids.begin(), ids.end());
  return ids;
}

absl::Status ReadRowValues(RowSource source, absl::Span<const uint64_t> ids,
                           size_t row_length, absl::Span<float> into) {
  if (ids.empty()) return absl::OkStatus();
  return source([&](const StoredRow& row) {
    if (row.is_candidate || row.id < ids.front() || row.id > ids.back()) {
      return absl::OkStatus();
    }
    const auto place = std::lower_bound(ids.begin(), ids.end(), row.id);
    if (*place == row.id) {
      std::copy_n(row.floats.begin(), row_length,
                  into.begin() + (place - ids.begin()) * row_length);
    }
    return absl::OkStatus();
  });
}

}  // namespace holdfast
