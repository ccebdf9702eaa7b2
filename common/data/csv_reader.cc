#include "common/data/csv_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kNone = std::string::npos;

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// Without spaces and tabs around it; a delimiter is never among these.
absl::string_view Trim(const char* begin, const char* end) {
  while (begin < end && IsBlank(*begin)) ++begin;
  while (begin < end && IsBlank(end[-1])) --end;
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CsvReader>> CsvReader::Open(
    const std::string& path, char delimiter) {
  std::unique_ptr<CsvReader> reader(new CsvReader(path, delimiter));
  auto file = UnpackedFile::Open(path, "CSV");
  if (!file.ok()) return file.status();
  reader->file_ = *std::move(file);
  reader->buffer_.resize(kBufferBytes);
  if (absl::Status status = reader->Fill(); !status.ok()) return status;
  const absl::string_view content(reader->buffer_.data(), reader->end_);
  if (absl::StartsWith(content, kByteOrderMark)) {
    reader->begin_ = kByteOrderMark.size();
  }
  return reader;
}

absl::Status CsvReader::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot read CSV file \"", path_, "\": line ", line_, ": ", what));
}

absl::Status CsvReader::Fill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size()) {
    if (end_ >= kMaxRowBytes) {
      return Error(absl::StrCat("the row is longer than ", kMaxRowBytes,
                                " bytes; is a quote not closed?"));
    }
    buffer_.resize(2 * buffer_.size());
  }
  const absl::StatusOr<size_t> n = file_->Read(
      reinterpret_cast<uint8_t*>(buffer_.data()) + end_, buffer_.size() - end_);
  if (!n.ok()) return n.status();
  at_end_ = *n < buffer_.size() - end_;
  end_ += *n;
  return absl::OkStatus();
}

absl::StatusOr<bool> CsvReader::Next(std::vector<absl::string_view>* cells) {
  while (true) {
    line_ = next_line_;
    const char* const begin = buffer_.data() + begin_;
    const auto* const newline =
        static_cast<const char*>(std::memchr(begin, '\n', end_ - begin_));
    if (newline == nullptr && !at_end_) {
      if (absl::Status status = Fill(); !status.ok()) return status;
      continue;
    }
    if (newline == nullptr && begin_ == end_) return false;
    const char* end = newline != nullptr ? newline : buffer_.data() + end_;
    size_t next = (newline != nullptr ? newline + 1 : end) - buffer_.data();
    int64_t lines = 1;
    cells->clear();
    if (std::memchr(begin, '"', end - begin) == nullptr) {
      if (end > begin && end[-1] == '\r') --end;
      if (!Trim(begin, end).empty()) SplitPlain(begin, end, cells);
    } else {
      absl::Status status = SplitQuoted(cells, &next, &lines);
      if (!status.ok()) return status;
      if (next == kNone) {
        if (status = Fill(); !status.ok()) return status;
        continue;
      }
    }
    begin_ = next;
    next_line_ = line_ + lines;
    if (!cells->empty()) return true;
  }
}

void CsvReader::SplitPlain(const char* begin, const char* end,
                           std::vector<absl::string_view>* cells) const {
  const char* cell = begin;
  for (const char* c = begin; c < end; ++c) {
    if (*c != delimiter_) continue;
    cells->push_back(Trim(cell, c));
    cell = c + 1;
  }
  cells->push_back(Trim(cell, end));
}

absl::Status CsvReader::SplitQuoted(std::vector<absl::string_view>* cells,
                                    size_t* next, int64_t* lines) {
  const char* const limit = buffer_.data() + end_;
  const char* c = buffer_.data() + begin_;
  const auto out_of_bytes = [&]() -> absl::Status {
    cells->clear();
    *next = kNone;
    return absl::OkStatus();
  };
  // No more than that is unquoted, so that cells in it stay where they are.
  unquoted_.clear();
  unquoted_.reserve(end_ - begin_);
  *lines = 1;
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
        *lines += std::count(c, end, '\n');
        if (quote == nullptr || (quote + 1 == limit && !at_end_)) {
          if (!at_end_) return out_of_bytes();
          return Error(absl::StrCat("the quote that opens cell ",
                                    cells->size() + 1, " is never closed"));
        }
        c = quote + 1;
        if (c == limit || *c != '"') break;
        // A doubled quote: up to and with the first of the two.
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
      if (c == limit && !at_end_) return out_of_bytes();
      if (c < limit && *c == '\r') ++c;
      if (c == limit && !at_end_) return out_of_bytes();
      if (c < limit && *c != delimiter_ && *c != '\n') {
        return Error(absl::StrCat("cell ", cells->size(),
                                  " goes on behind its closing quote; a quote "
                                  "within a quoted cell is doubled"));
      }
    } else {
      const char* const begin = c;
      while (c < limit && *c != delimiter_ && *c != '\n') ++c;
      if (c == limit && !at_end_) return out_of_bytes();
      const char* end = c;
      const bool is_last = c == limit || *c == '\n';
      if (is_last && end > begin && end[-1] == '\r') --end;
      cells->push_back(Trim(begin, end));
    }
    if (c == limit || *c == '\n') {
      *next = (c == limit ? c : c + 1) - buffer_.data();
      return absl::OkStatus();
    }
    ++c;
  }
}

}  // namespace holdfast
