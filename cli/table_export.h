// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_TABLE_EXPORT_H_
#define HOLDFAST_CLI_TABLE_EXPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/data_file.h"

namespace holdfast {

// Writes the rows of tables, by name, in the order of ids, each to two files:
//
//   STEM.NAME.ids.npy     uint64 [n]
//   STEM.NAME.values.npy  float32 [n, row_length]
//
// STEM is `output` without its extension; a slash in a name becomes a dot. This
// takes 8 bytes of memory per row of a table, and `window_bytes` for values. A
// table is read once for its ids, and once for each window of its values,
// because rows are stored by bucket, not in the order of ids.
//
// Errors: INVALID_ARGUMENT when two tables would have the same files; those of
// the reader and of the file system. After an error, the two files of a table
// are either both unchanged or both new.
absl::Status ExportTables(CheckpointReader* reader,
                          const std::vector<std::string>& tables,
                          const std::string& output, uint64_t window_bytes);

// The number of changes to a table.
struct TableChanges {
  std::string table;
  uint64_t rows = 0;
  uint64_t removed = 0;
};

// Writes, in the same way as ExportTables, the rows that steps after
// `since_step` have touched, and a third file with the ids of the rows that
// these steps have removed and not created again:
//
//   STEM.NAME.removed.npy  uint64 [n], in increasing order
//
// A reader that has the rows of `since_step` updates them by removing these ids
// and then storing the rows. Errors: those of ExportTables and of
// CheckpointReader::ReadChanges.
absl::StatusOr<std::vector<TableChanges>> ExportTableChanges(
    CheckpointReader* reader, const std::vector<std::string>& tables,
    uint64_t since_step, const std::string& output, uint64_t window_bytes);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TABLE_EXPORT_H_
