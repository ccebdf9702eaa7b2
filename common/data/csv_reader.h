// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_CSV_READER_H_
#define HOLDFAST_COMMON_DATA_CSV_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/data/csv_blocks.h"
#include "common/data/csv_rows.h"

namespace holdfast {

// Reads the rows (csv_rows.h) of a file, plain or gzip, one by one.
//
// Memory: that of the longest row, at least CsvBlocks::kBlockBytes and at most
// CsvBlocks::kMaxRowBytes. Thread-compatible.
class CsvReader {
 public:
  // Errors: those of UnpackedFile::Open.
  static absl::StatusOr<std::unique_ptr<CsvReader>> Open(
      const std::string& path, char delimiter);

  // Fills `cells` with the cells of the next row, valid until the next call,
  // and returns whether there is a next row.
  // Errors: INVALID_ARGUMENT, with the line, for a quote that is not closed,
  // something after a closing quote, or a row that is too long; those of
  // UnpackedFile. No rows follow an error.
  absl::StatusOr<bool> Next(std::vector<absl::string_view>* cells);

  // The line at which the row that Next returned last begins, counting from 1.
  int64_t line() const { return line_; }

 private:
  CsvReader(std::unique_ptr<CsvBlocks> blocks, char delimiter)
      : blocks_(std::move(blocks)), delimiter_(delimiter) {}

  const std::unique_ptr<CsvBlocks> blocks_;
  const char delimiter_;
  CsvBlock block_;
  // The rows of block_.
  std::optional<CsvRows> rows_;
  // The line at which block_ begins, from 1.
  int64_t first_line_ = 1;
  int64_t line_ = 1;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_READER_H_
