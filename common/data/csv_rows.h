#ifndef HOLDFAST_COMMON_DATA_CSV_ROWS_H_
#define HOLDFAST_COMMON_DATA_CSV_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace holdfast {

// The rows of a text of separated values, as RFC 4180 has them:
//
//   text    = row *( newline row ) [newline]
//   row     = cell *( delimiter cell )
//   cell    = quoted / plain
//   quoted  = DQUOTE *( any but DQUOTE / DQUOTE DQUOTE ) DQUOTE
//   plain   = *( any but delimiter and newline ) ; not beginning with DQUOTE
//   newline = LF / CR LF
//
// Spaces and tabs around a cell do not belong to it, unless they are quoted;
// lines with nothing else are left out.
//
// Delimiters, quotes and newlines are found 64 bytes at a time; only rows with
// quotes in them are read byte by byte.
//
// Thread-compatible. The text must outlive it.
class CsvRows {
 public:
  enum class Result {
    kRow,
    // No whole row is left.
    kEnd,
    // fault() says what is wrong with the row at line(). There are no rows
    // behind it.
    kFault,
  };

  // `is_last`: the text ends where the file ends. Otherwise what follows its
  // last newline outside quotes is no whole row.
  CsvRows(absl::string_view text, char delimiter, bool is_last);

  // Fills `cells` with those of the next row. They stay until the next call.
  Result Next(std::vector<absl::string_view>* cells);

  // Where the last row begins, counting lines from 0.
  int64_t line() const { return line_; }
  // Lines up to the end of the last row.
  int64_t lines() const { return next_line_; }
  // Bytes up to the end of the last row and its newline.
  size_t size() const { return begin_; }
  // Of kFault: a quote that is not closed, or something behind a closing quote.
  const std::string& fault() const { return fault_; }

 private:
  // The place of the next delimiter, quote or newline that is not consumed, or
  // the end of the text.
  size_t NextMark();
  // Makes NextMark() go on at `place`.
  void Seek(size_t place);
  // Sets marks_ to the places of all marks among the 64 bytes at block_.
  void FindMarks();
  // Reads the row at begin_, in which there is a quote.
  Result ReadQuoted(std::vector<absl::string_view>* cells);
  Result Fault(std::string what);

  const absl::string_view text_;
  const char delimiter_;
  const bool is_last_;
  // Where the next row begins.
  size_t begin_ = 0;
  int64_t line_ = 0;
  int64_t next_line_ = 0;
  // Bit i: there is a mark at block_ + i.
  uint64_t marks_ = 0;
  size_t block_ = 0;
  // Of cells in which quotes are doubled.
  std::string unquoted_;
  std::string fault_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_ROWS_H_
