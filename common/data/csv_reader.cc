// SPDX-License-Identifier: Apache-2.0
#include "common/data/csv_reader.h"

#include "common/base/status_macros.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<CsvReader>> CsvReader::Open(
    const std::string& path, char delimiter) {
  HOLDFAST_ASSIGN_OR_RETURN(auto blocks, CsvBlocks::Open(path, delimiter));
  return std::unique_ptr<CsvReader>(
      new CsvReader(std::move(blocks), delimiter));
}

absl::StatusOr<bool> CsvReader::Next(std::vector<absl::string_view>* cells) {
  while (true) {
    if (rows_.has_value()) {
      const CsvRows::Result result = rows_->Next(cells);
      line_ = first_line_ + rows_->line();
      if (result == CsvRows::Result::kRow) return true;
      if (result == CsvRows::Result::kFault) {
        return blocks_->Error(line_, rows_->fault());
      }
      first_line_ += rows_->lines();
      rows_.reset();
    }
    const absl::StatusOr<bool> more = blocks_->Next(&block_);
    if (!more.ok() || !*more) return more;
    if (!block_.fault.empty()) {
      return blocks_->Error(first_line_, block_.fault);
    }
    rows_.emplace(block_.text, delimiter_, block_.is_last);
  }
}

}  // namespace holdfast
