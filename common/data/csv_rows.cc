// SPDX-License-Identifier: Apache-2.0
#include "common/data/csv_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr size_t kBlock = 64;

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// The text without surrounding spaces and tabs, which never include a
// delimiter.
absl::string_view Trim(const char* begin, const char* end) {
  while (begin < end && IsBlank(*begin)) ++begin;
  while (begin < end && IsBlank(end[-1])) --end;
  return {begin, static_cast<size_t>(end - begin)};
}

// Bit i is set if byte i of the 64 at `bytes` is `delimiter`, a quote or a
// newline.
#ifdef __SSE2__
uint64_t MarksOf(const char* bytes, char delimiter) {
  const __m128i delimiters = _mm_set1_epi8(delimiter);
  const __m128i quotes = _mm_set1_epi8('"');
  const __m128i newlines = _mm_set1_epi8('\n');
  uint64_t marks = 0;
  for (size_t i = 0; i < kBlock; i += 16) {
    const __m128i part =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i));
    const __m128i found =
        _mm_or_si128(_mm_cmpeq_epi8(part, delimiters),
                     _mm_or_si128(_mm_cmpeq_epi8(part, quotes),
                                  _mm_cmpeq_epi8(part, newlines)));
    marks |= uint64_t{static_cast<uint32_t>(_mm_movemask_epi8(found))} << i;
  }
  return marks;
}
#else
uint64_t MarksOf(const char* bytes, char delimiter) {
  uint64_t marks = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool found =
        bytes[i] == delimiter || bytes[i] == '"' || bytes[i] == '\n';
    marks |= uint64_t{found} << i;
  }
  return marks;
}
#endif

}  // namespace

CsvRows::CsvRows(absl::string_view text, char delimiter, bool is_last)
    : text_(text), delimiter_(delimiter), is_last_(is_last) {
  FindMarks();
}

void CsvRows::FindMarks() {
  const size_t left = text_.size() - block_;
  if (left >= kBlock) {
    marks_ = MarksOf(text_.data() + block_, delimiter_);
    return;
  }
  char last[kBlock] = {};
  if (left > 0) std::memcpy(last, text_.data() + block_, left);
  marks_ = MarksOf(last, delimiter_) & ((uint64_t{1} << left) - 1);
}

size_t CsvRows::NextMark() {
  while (marks_ == 0) {
    if (text_.size() - block_ <= kBlock) return text_.size();
    block_ += kBlock;
    FindMarks();
  }
  const size_t place = block_ + __builtin_ctzll(marks_);
  marks_ &= marks_ - 1;
  return place;
}

void CsvRows::Seek(size_t place) {
  block_ = place;
  FindMarks();
}

CsvRows::Result CsvRows::Fault(std::string what) {
  fault_ = std::move(what);
  return Result::kFault;
}

CsvRows::Result CsvRows::Next(std::vector<absl::string_view>* cells) {
  const char* const text = text_.data();
  while (true) {
    line_ = next_line_;
    cells->clear();
    if (begin_ == text_.size()) return Result::kEnd;
    size_t cell = begin_;
    size_t mark = NextMark();
    for (; mark < text_.size() && text[mark] == delimiter_; mark = NextMark()) {
      cells->push_back(Trim(text + cell, text + mark));
      cell = mark + 1;
    }
    if (mark < text_.size() && text[mark] == '"') return ReadQuoted(cells);
    if (mark == text_.size() && !is_last_) {
      cells->clear();
      return Result::kEnd;
    }
    size_t end = mark;
    if (end > cell && text[end - 1] == '\r') --end;
    cells->push_back(Trim(text + cell, text + end));
    // In a line of delimiters all cells are empty, too.
    const bool is_blank =
        cells->back().empty() && Trim(text + begin_, text + end).empty();
    begin_ = std::min(mark + 1, text_.size());
    ++next_line_;
    if (!is_blank) return Result::kRow;
  }
}

CsvRows::Result CsvRows::ReadQuoted(std::vector<absl::string_view>* cells) {
  const char* const limit = text_.data() + text_.size();
  const char* c = text_.data() + begin_;
  cells->clear();
  const auto no_whole_row = [cells] {
    cells->clear();
    return Result::kEnd;
  };
  // Unquoted text never exceeds this size, so it is not reallocated and cells
  // in it stay valid.
  unquoted_.clear();
  unquoted_.reserve(limit - c);
  int64_t lines = 1;
  while (true) {
    while (c < limit && IsBlank(*c) && *c != delimiter_) ++c;
    if (c < limit && *c == '"') {
      ++c;
      const char* piece = c;
      const size_t kept = unquoted_.size();
      while (true) {
        const auto* const quote =
            static_cast<const char*>(std::memchr(c, '"', limit - c));
        const char* const end = quote != nullptr ? quote : limit;
        lines += std::count(c, end, '\n');
        if (quote == nullptr || (quote + 1 == limit && !is_last_)) {
          if (!is_last_) return no_whole_row();
          return Fault(absl::StrCat("the quote that opens cell ",
                                    cells->size() + 1, " is never closed"));
        }
        c = quote + 1;
        if (c == limit || *c != '"') break;
        // A doubled quote: append up to and including the first of the two.
        unquoted_.append(piece, c - piece);
        piece = ++c;
      }
      const size_t last = c - 1 - piece;
      if (unquoted_.size() == kept) {
        cells->push_back({piece, last});
      } else {
        unquoted_.append(piece, last);
        cells->push_back(
            absl::string_view(unquoted_).substr(kept, std::string::npos));
      }
      while (c < limit && IsBlank(*c) && *c != delimiter_) ++c;
      if (c == limit && !is_last_) return no_whole_row();
      if (c < limit && *c == '\r') ++c;
      if (c == limit && !is_last_) return no_whole_row();
      if (c < limit && *c != delimiter_ && *c != '\n') {
        return Fault(absl::StrCat("cell ", cells->size(),
                                  " continues after its closing quote; a quote "
                                  "within a quoted cell must be doubled"));
      }
    } else {
      const char* const begin = c;
      while (c < limit && *c != delimiter_ && *c != '\n') ++c;
      if (c == limit && !is_last_) return no_whole_row();
      const char* end = c;
      const bool is_last_cell = c == limit || *c == '\n';
      if (is_last_cell && end > begin && end[-1] == '\r') --end;
      cells->push_back(Trim(begin, end));
    }
    if (c == limit || *c == '\n') {
      begin_ = (c == limit ? c : c + 1) - text_.data();
      next_line_ += lines;
      Seek(begin_);
      return Result::kRow;
    }
    ++c;
  }
}

}  // namespace holdfast
