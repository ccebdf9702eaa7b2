// SPDX-License-Identifier: Apache-2.0
#include "common/data/csv_blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/data/csv_rows.h"

namespace holdfast {
namespace {

constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

absl::StatusOr<std::unique_ptr<CsvBlocks>> CsvBlocks::Open(
    const std::string& path, char delimiter) {
  HOLDFAST_ASSIGN_OR_RETURN(auto file, UnpackedFile::Open(path, "CSV"));
  std::unique_ptr<CsvBlocks> blocks(new CsvBlocks(path, delimiter));
  blocks->file_ = std::move(file);
  return blocks;
}

absl::Status CsvBlocks::Error(int64_t line, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot read CSV file \"", path_, "\": line ", line, ": ", what));
}

absl::StatusOr<bool> CsvBlocks::Next(CsvBlock* block) {
  block->text = {};
  block->is_last = false;
  block->fault.clear();
  if (done_) return false;
  std::vector<char>& memory = block->memory;
  // For a small file, its size and one byte more, to detect its end.
  const size_t enough =
      std::min<size_t>(kBlockBytes, file_->greatest_size() + 1);
  memory.resize(std::max({memory.size(), enough, rest_.size()}));
  std::copy(rest_.begin(), rest_.end(), memory.begin());
  size_t end = rest_.size();
  while (true) {
    if (end == memory.size()) {
      if (end >= kMaxRowBytes) {
        block->fault = absl::StrCat("the row is longer than ", kMaxRowBytes,
                                    " bytes; is a quote not closed?");
        done_ = true;
        return true;
      }
      memory.resize(2 * memory.size());
    }
    const size_t asked = memory.size() - end;
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto n,
        file_->Read(reinterpret_cast<uint8_t*>(memory.data()) + end, asked));
    end += n;
    absl::string_view text(memory.data(), end);
    const bool has_mark = at_begin_ && absl::StartsWith(text, kByteOrderMark);
    if (has_mark) text.remove_prefix(kByteOrderMark.size());
    const bool at_end = n < asked;
    bool fault = false;
    const size_t whole = at_end ? text.size() : WholeRows(text, &fault);
    if (whole == 0 && !at_end) continue;
    at_begin_ = false;
    done_ = at_end || fault;
    block->is_last = done_;
    block->text = text.substr(0, whole);
    rest_.assign(text.data() + whole, text.size() - whole);
    return !block->text.empty();
  }
}

size_t CsvBlocks::WholeRows(absl::string_view text, bool* fault) const {
  if (!absl::StrContains(text, '"')) {
    const size_t newline = text.rfind('\n');
    return newline == absl::string_view::npos ? 0 : newline + 1;
  }
  CsvRows rows(text, delimiter_, /*is_last=*/false);
  std::vector<absl::string_view> cells;
  CsvRows::Result result;
  while ((result = rows.Next(&cells)) == CsvRows::Result::kRow) {
  }
  *fault = result == CsvRows::Result::kFault;
  return *fault ? text.size() : rows.size();
}

}  // namespace holdfast
