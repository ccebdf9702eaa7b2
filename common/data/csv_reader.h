#ifndef HOLDFAST_COMMON_DATA_CSV_READER_H_
#define HOLDFAST_COMMON_DATA_CSV_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/data/unpacked_file.h"

namespace holdfast {

// The rows of a file of separated values, plain or gzip, as RFC 4180 has them:
//
//   file    = [byte order mark] row *( newline row ) [newline]
//   row     = cell *( delimiter cell )
//   cell    = quoted / plain
//   quoted  = DQUOTE *( any but DQUOTE / DQUOTE DQUOTE ) DQUOTE
//   plain   = *( any but delimiter and newline ) ; not beginning with DQUOTE
//   newline = LF / CR LF
//
// Spaces and tabs around a cell do not belong to it, unless they are quoted;
// lines with nothing else are left out.
//
// Memory: that of the longest row, at least 1 MiB and at most kMaxRowBytes.
// Thread-compatible.
class CsvReader {
 public:
  static constexpr size_t kMaxRowBytes = 16 << 20;

  // Errors: those of UnpackedFile::Open.
  static absl::StatusOr<std::unique_ptr<CsvReader>> Open(
      const std::string& path, char delimiter);

  // Fills `cells` with those of the next row, and returns whether there is one.
  // They stay until the next call.
  // Errors: INVALID_ARGUMENT, with the line, for a quote that is not closed,
  // something behind a closing quote, or a row that is too long; those of
  // UnpackedFile. There are no rows behind an error.
  absl::StatusOr<bool> Next(std::vector<absl::string_view>* cells);

  // Where the last row begins; from 1.
  int64_t line() const { return line_; }
  const std::string& path() const { return path_; }
  const UnpackedFile& file() const { return *file_; }

  // An error about the line at which the last row begins.
  absl::Status Error(absl::string_view what) const;

 private:
  CsvReader(const std::string& path, char delimiter)
      : path_(path), delimiter_(delimiter) {}

  // Reads more behind what is left in the buffer. Errors: those of the file; a
  // row that is too long.
  absl::Status Fill();
  // Of a row without quotes, at [begin, end).
  void SplitPlain(const char* begin, const char* end,
                  std::vector<absl::string_view>* cells) const;
  // Of the row at begin_; sets *next to where the one behind it begins, or to
  // npos where the buffer does not hold all of it.
  absl::Status SplitQuoted(std::vector<absl::string_view>* cells, size_t* next,
                           int64_t* lines);

  const std::string path_;
  const char delimiter_;
  std::unique_ptr<UnpackedFile> file_;
  // What is not used yet: buffer_[begin_, end_).
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool at_end_ = false;
  int64_t line_ = 0;
  int64_t next_line_ = 1;
  // Of cells in which quotes are doubled.
  std::string unquoted_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_READER_H_
