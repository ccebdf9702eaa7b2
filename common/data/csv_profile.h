// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_CSV_PROFILE_H_
#define HOLDFAST_COMMON_DATA_CSV_PROFILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Statistics of a column of CSV files.
struct CsvColumnProfile {
  std::string name;
  // The number of cells that have a value; and of cells that are empty or one
  // of the usual marks of a missing value ("NA", "nan", "?", ...).
  int64_t present = 0;
  int64_t missing = 0;
  // How many of the present cells are finite numbers, and whole numbers.
  int64_t numbers = 0;
  int64_t whole_numbers = 0;
  // Statistics of the numbers, with the population standard deviation.
  double min = 0;
  double max = 0;
  double mean = 0;
  double stddev = 0;
  // How often each value occurs. If there are more than kMostValues values, it
  // is empty, and many_values is true.
  std::map<std::string, int64_t> values;
  bool many_values = false;

  static constexpr size_t kMostValues = 1000;

  bool is_number() const { return present > 0 && numbers == present; }
};

struct CsvProfile {
  std::vector<CsvColumnProfile> columns;
  int64_t rows = 0;
  // The number of rows whose number of cells is not that of the columns, and
  // what is wrong with the first such row.
  int64_t uneven_rows = 0;
  std::string first_uneven;
  // The marks of missing values that occur.
  std::vector<std::string> missing_marks;
};

// Reads all rows of the files of `patterns` (find_files.h) once, in constant
// memory. Columns without a header are named by their position.
// Errors: those of FindFiles and CsvReader; INVALID_ARGUMENT if there is no
// row.
absl::StatusOr<CsvProfile> ProfileCsv(const std::vector<std::string>& patterns,
                                      char delimiter, bool header);

// Suggests a schema to start from, as the text of a Csv: numeric columns with
// their mean and deviation, other columns with their values, the most frequent
// first, and in place of a useless column a comment that says why. `answer` is
// the column to be learned: a target if `is_target`, else a label.
std::string SuggestSchema(const CsvProfile& profile,
                          const std::vector<std::string>& patterns,
                          char delimiter, bool header, absl::string_view answer,
                          bool is_target);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_PROFILE_H_
