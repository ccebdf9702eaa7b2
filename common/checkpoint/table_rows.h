// SPDX-License-Identifier: Apache-2.0

// The rows of a table in the order of ids. The files of a checkpoint have them
// by bucket, so whoever wants them in order reads them twice: first the ids,
// then the values, each to its place.
#ifndef HOLDFAST_COMMON_CHECKPOINT_TABLE_ROWS_H_
#define HOLDFAST_COMMON_CHECKPOINT_TABLE_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checkpoint/data_file.h"

namespace holdfast {

// Returns the ids of all rows of a declared table, in increasing order.
// Candidates are not rows. Errors: those of CheckpointReader::ReadRows.
absl::StatusOr<std::vector<uint64_t>> ReadRowIds(CheckpointReader* reader,
                                                 absl::string_view table);

// Visits rows, and possibly candidates, in any order.
using RowSource = absl::FunctionRef<absl::Status(CheckpointReader::VisitRow)>;

// Copies the values (without slots) of those rows of `source` that are among
// `ids` to `into`, [ids.size(), row_length]. `ids` must be strictly increasing.
// Errors: those of `source`.
absl::Status ReadRowValues(RowSource source, absl::Span<const uint64_t> ids,
                           size_t row_length, absl::Span<float> into);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_TABLE_ROWS_H_
