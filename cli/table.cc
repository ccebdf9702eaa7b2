// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/units.h"
#include "common/base/printable_text.h"

namespace holdfast {
namespace {

constexpr char kUnknown[] = "-";
constexpr char kGap[] = "  ";

std::string Padded(const std::string& text, size_t width, bool right_aligned) {
  const std::string space(width - std::min(width, TextWidth(text)), ' ');
  return right_aligned ? space + text : text + space;
}

}  // namespace

std::vector<std::string> Table::Lines() const {
  std::vector<std::string> lines(rows_.size() + 1);
  for (size_t column = 0; column < columns_.size(); ++column) {
    const auto is_known = [&](const std::vector<std::string>& row) {
      return !row[column].empty();
    };
    if (std::none_of(rows_.begin(), rows_.end(), is_known)) continue;
    std::vector<std::string> cells = {columns_[column].title};
    for (const std::vector<std::string>& row : rows_) {
      cells.push_back(is_known(row) ? PrintableText(row[column]) : kUnknown);
    }
    size_t width = columns_[column].least_width;
    for (const std::string& cell : cells) {
      width = std::max(width, TextWidth(cell));
    }
    for (size_t i = 0; i < cells.size(); ++i) {
      absl::StrAppend(&lines[i], lines[i].empty() ? "" : kGap,
                      Padded(cells[i], width, columns_[column].right_aligned));
    }
  }
  for (std::string& line : lines) absl::StripTrailingAsciiWhitespace(&line);
  return lines;
}

}  // namespace holdfast
