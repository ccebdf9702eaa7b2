// SPDX-License-Identifier: Apache-2.0
#include "common/data/csv_profile.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/data/csv_reader.h"
#include "common/data/find_files.h"

namespace holdfast {
namespace {

constexpr absl::string_view kMissingMarks[] = {
    "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?", "-"};

bool IsMark(absl::string_view text) {
  return std::find(std::begin(kMissingMarks), std::end(kMissingMarks), text) !=
         std::end(kMissingMarks);
}

void AddCell(absl::string_view text, CsvColumnProfile* column) {
  ++column->present;
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number)) {
    column->min = column->numbers == 0 ? number : std::min(column->min, number);
    column->max = column->numbers == 0 ? number : std::max(column->max, number);
    ++column->numbers;
    if (number == std::floor(number)) ++column->whole_numbers;
    // Welford 1962; stddev holds the sum of squares until the end.
    const double before = number - column->mean;
    column->mean += before / static_cast<double>(column->numbers);
    column->stddev += before * (number - column->mean);
  }
  if (column->many_values) return;
  ++column->values[std::string(text)];
  if (column->values.size() > CsvColumnProfile::kMostValues) {
    column->many_values = true;
    column->values.clear();
  }
}

std::string Quote(absl::string_view text) {
  return absl::StrCat("\"", EscapedText(text), "\"");
}

// The number with at most six digits, which suffice for a schema.
std::string Digits(double value) { return absl::StrCat(value); }

std::vector<std::string> ByFrequency(const CsvColumnProfile& column) {
  std::vector<std::pair<std::string, int64_t>> counts(column.values.begin(),
                                                      column.values.end());
  std::stable_sort(
      counts.begin(), counts.end(),
      [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> names;
  for (const auto& [name, count] : counts) names.push_back(name);
  return names;
}

std::string ValuesText(const std::vector<std::string>& values) {
  return absl::StrJoin(values, " ",
                       [](std::string* out, const std::string& value) {
                         absl::StrAppend(out, "values: ", Quote(value));
                       });
}

// The contents of an input's CsvColumn, or a comment that says why there are
// none.
std::string InputText(const CsvColumnProfile& column) {
  if (column.present == 0) return "# no values at all";
  if (column.is_number()) {
    if (column.min == column.max) return "# the same number in all rows";
    return absl::StrCat("number { mean: ", Digits(column.mean),
                        " stddev: ", Digits(column.stddev),
                        column.missing > 0
                            ? absl::StrCat(" missing: ", Digits(column.mean))
                            : "",
                        " }");
  }
  if (column.many_values) {
    return absl::StrCat("# more than ", CsvColumnProfile::kMostValues,
                        " different texts; for embedding tables: ids {",
                        column.missing > 0 ? " missing: OWN " : "", "}");
  }
  if (column.values.size() == 1 && column.missing == 0) {
    return "# the same text in all rows";
  }
  return absl::StrCat("category { ", ValuesText(ByFrequency(column)),
                      column.missing > 0 ? " other: OWN" : "", " }");
}

std::string AnswerText(const CsvColumnProfile& column, bool is_target) {
  if (is_target) return "target {}";
  const bool are_classes = column.whole_numbers == column.present &&
                           column.min >= 0 && column.present > 0;
  if (are_classes) return "label {}";
  std::vector<std::string> names;
  for (const auto& [name, count] : column.values) names.push_back(name);
  return absl::StrCat("label { ", ValuesText(names), " }");
}

}  // namespace

absl::StatusOr<CsvProfile> ProfileCsv(const std::vector<std::string>& patterns,
                                      char delimiter, bool header) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto paths, FindFiles(patterns));
  CsvProfile profile;
  std::set<std::string> marks;
  std::vector<absl::string_view> row;
  for (const std::string& path : paths) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto reader,
                              CsvReader::Open(path, delimiter));
    bool is_header = header;
    while (true) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto more, reader->Next(&row));
      if (!more) break;
      const int64_t size = row.size();
      if (profile.columns.empty()) {
        for (int64_t i = 0; i < size; ++i) {
          CsvColumnProfile& column = profile.columns.emplace_back();
          column.name = header ? std::string(row[i]) : absl::StrCat(i);
        }
      }
      if (is_header) {
        is_header = false;
        continue;
      }
      const int64_t columns = profile.columns.size();
      if (size != columns) {
        if (++profile.uneven_rows == 1) {
          profile.first_uneven =
              absl::StrCat(path, ": line ", reader->line(), " has ", size,
                           " cells instead of ", columns);
        }
        continue;
      }
      ++profile.rows;
      for (int64_t i = 0; i < columns; ++i) {
        if (row[i].empty() || IsMark(row[i])) {
          ++profile.columns[i].missing;
          if (!row[i].empty()) marks.emplace(row[i]);
        } else {
          AddCell(row[i], &profile.columns[i]);
        }
      }
    }
  }
  if (profile.rows == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", paths.front(), "\" has no rows",
        profile.uneven_rows > 0 ? absl::StrCat(": ", profile.first_uneven)
                                : ""));
  }
  for (CsvColumnProfile& column : profile.columns) {
    if (column.numbers == 0) continue;
    column.stddev =
        std::sqrt(column.stddev / static_cast<double>(column.numbers));
  }
  profile.missing_marks.assign(marks.begin(), marks.end());
  return profile;
}

std::string SuggestSchema(const CsvProfile& profile,
                          const std::vector<std::string>& patterns,
                          char delimiter, bool header, absl::string_view answer,
                          bool is_target) {
  std::string text = "csv {\n";
  for (const std::string& pattern : patterns) {
    absl::StrAppend(&text, "  files: ", Quote(pattern), "\n");
  }
  if (delimiter != ',') {
    absl::StrAppend(
        &text, "  delimiter: ", Quote(absl::string_view(&delimiter, 1)), "\n");
  }
  if (!header) absl::StrAppend(&text, "  header: false\n");
  for (const std::string& mark : profile.missing_marks) {
    absl::StrAppend(&text, "  missing: ", Quote(mark), "\n");
  }
  for (size_t i = 0; i < profile.columns.size(); ++i) {
    const CsvColumnProfile& column = profile.columns[i];
    const std::string which = header
                                  ? absl::StrCat("name: ", Quote(column.name))
                                  : absl::StrCat("range { first: ", i, " }");
    const std::string kind = column.name == answer
                                 ? AnswerText(column, is_target)
                                 : InputText(column);
    if (kind[0] == '#') {
      absl::StrAppend(&text, "  # not used: ", Quote(column.name), ",",
                      kind.substr(1), "\n");
    } else {
      absl::StrAppend(&text, "  columns { ", which, " ", kind, " }\n");
    }
  }
  return text + "}\n";
}

}  // namespace holdfast
