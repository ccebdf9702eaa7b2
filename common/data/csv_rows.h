// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_CSV_ROWS_H_
#define HOLDFAST_COMMON_DATA_CSV_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace holdfast {

// Splits a text of separated values into rows, as defined by RFC 4180:
//
//   text    = row *( newline row ) [newline]
//   row     = cell *( delimiter cell )
//   cell    = quoted / plain
//   quoted  = DQUOTE *( any but DQUOTE / DQUOTE DQUOTE ) DQUOTE
//   plain   = *( any but delimiter and newline ) ; not beginning with DQUOTE
//   newline = LF / CR LF
//
// Spaces and tabs around a cell do not belong to it, unless they are quoted;
// lines with nothing else are skipped.
//
// Delimiters, quotes and newlines are found 64 bytes at a time; only rows with
// quotes in them are read byte by byte.
//
// Thread-compatible. The text must outlive this object.
class CsvRows {
 public:
  enum class Result {
    kRow,
    // No whole row is left.
    kEnd,
    // fault() says what is wrong with the row at line(). No rows follow it.
    kFault,
  };

  // `is_last` says whether the text ends where the file ends. If it does not,
  // the text after the last newline outside quotes is not a whole row.
  CsvRows(absl::string_view text, char delimiter, bool is_last);

  // Fills `cells` with the cells of the next row, valid until the next call.
  Result Next(std::vector<absl::string_view>* cells);

  // The line at which the row that Next returned last begins, counting from 0.
  int64_t line() const { return line_; }
  // The number of lines up to the end of that row.
  int64_t lines() const { return next_line_; }
  // The number of bytes up to the end of that row and its newline.
  size_t size() const { return begin_; }
  // What is wrong with the row for which Next returned kFault: a quote that is
  // not closed, or something after a closing quote.
  const std::string& fault() const { return fault_; }

 private:
  // The position of the next delimiter, quote or newline that is not consumed,
  // or the end of the text.
  size_t NextMark();
  // Makes NextMark() continue at `place`.
  void Seek(size_t place);
  // Sets marks_ to the positions of all marks among the 64 bytes at block_.
  void FindMarks();
  // Reads the row at begin_, which contains a quote.
  Result ReadQuoted(std::vector<absl::string_view>* cells);
  Result Fault(std::string what);

  const absl::string_view text_;
  const char delimiter_;
  const bool is_last_;
  // Where the next row begins.
  size_t begin_ = 0;
  int64_t line_ = 0;
  int64_t next_line_ = 0;
  // Bit i says whether there is a mark at block_ + i.
  uint64_t marks_ = 0;
  size_t block_ = 0;
  // The text of cells with doubled quotes.
  std::string unquoted_;
  std::string fault_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_ROWS_H_
