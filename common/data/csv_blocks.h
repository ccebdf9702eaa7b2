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

// Whole rows of a file of separated values, one after the other.
struct CsvBlock {
  absl::string_view text;
  // No row follows in the file.
  bool is_last = false;
  // What is wrong with the row behind the text, at whose end reading stops.
  // Empty: nothing.
  std::string fault;

  // Where the text lies.
  std::vector<char> memory;
};

// Cuts a file of separated values (csv_rows.h), plain or gzip, into blocks of
// whole rows, which can then be parsed in parallel. A byte order mark at the
// beginning is left out.
//
// Thread-compatible. Memory: blocks belong to the caller; in here stays less
// than a row.
class CsvBlocks {
 public:
  // Blocks are of this size, unless a row is longer.
  static constexpr size_t kBlockBytes = 512 << 10;
  static constexpr size_t kMaxRowBytes = 16 << 20;

  // Errors: those of UnpackedFile::Open.
  static absl::StatusOr<std::unique_ptr<CsvBlocks>> Open(
      const std::string& path, char delimiter);

  // Fills `block`, whose memory is used again, with the next rows. Returns
  // whether there is a block.
  // Errors: those of UnpackedFile.
  absl::StatusOr<bool> Next(CsvBlock* block);

  // An error about line `line`, from 1, of the file.
  absl::Status Error(int64_t line, absl::string_view what) const;

  const std::string& path() const { return path_; }
  const UnpackedFile& file() const { return *file_; }

 private:
  CsvBlocks(const std::string& path, char delimiter)
      : path_(path), delimiter_(delimiter) {}

  // How much of `text`, which goes on in the file, is whole rows. *fault: there
  // is a row in it that ends them.
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
