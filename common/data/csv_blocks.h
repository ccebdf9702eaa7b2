// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_CSV_BLOCKS_H_
#define HOLDFAST_COMMON_DATA_CSV_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/data/unpacked_file.h"

namespace holdfast {

// Consecutive whole rows of a file of separated values.
struct CsvBlock {
  absl::string_view text;
  // Whether no row follows in the file.
  bool is_last = false;
  // What is wrong with the row after `text`, at which reading stops. Empty if
  // nothing is wrong.
  std::string fault;

  // The memory of `text`.
  std::vector<char> memory;
};

// Cuts a file of separated values (csv_rows.h), plain or gzip, into blocks of
// whole rows, which can then be parsed in parallel. A byte order mark at the
// beginning is skipped.
//
// Thread-compatible. Memory: blocks belong to the caller; the object itself
// keeps less than a row.
class CsvBlocks {
 public:
  // Blocks have this size, unless a row is longer.
  static constexpr size_t kBlockBytes = 512 << 10;
  static constexpr size_t kMaxRowBytes = 16 << 20;

  // Errors: those of UnpackedFile::Open.
  static absl::StatusOr<std::unique_ptr<CsvBlocks>> Open(
      const std::string& path, char delimiter);

  // Fills `block`, whose memory is reused, with the next rows. Returns false if
  // no rows are left.
  // Errors: those of UnpackedFile.
  absl::StatusOr<bool> Next(CsvBlock* block);

  // An error about line `line` (from 1) of the file.
  absl::Status Error(int64_t line, absl::string_view what) const;

  const std::string& path() const { return path_; }
  const UnpackedFile& file() const { return *file_; }

 private:
  CsvBlocks(const std::string& path, char delimiter)
      : path_(path), delimiter_(delimiter) {}

  // The number of bytes of whole rows at the beginning of `text`, which
  // continues in the file. Sets *fault to whether a malformed row follows them.
  size_t WholeRows(absl::string_view text, bool* fault) const;

  const std::string path_;
  const char delimiter_;
  std::unique_ptr<UnpackedFile> file_;
  bool at_begin_ = true;
  bool done_ = false;
  // The beginning of the next block's first row.
  std::string rest_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_BLOCKS_H_
