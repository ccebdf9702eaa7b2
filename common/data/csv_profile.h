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

// What is in a column of CSV files.
struct CsvColumnProfile {
  std::string name;
  // Cells with something in them, and those that are empty or one of the usual
  // marks of a missing value ("NA", "nan", "?", ...).
  int64_t present = 0;
  int64_t missing = 0;
  // Of those present: how many are finite numbers, and whole ones.
  int64_t numbers = 0;
  int64_t whole_numbers = 0;
  // Of the numbers; the deviation is that of the population.
  double min = 0;
  double max = 0;
  double mean = 0;
  double stddev = 0;
  // How often each value comes. Empty once there are more than kMostValues.
  std::map<std::string, int64_t> values;
  bool many_values = false;

  static constexpr size_t kMostValues = 1000;

  bool is_number() const { return present > 0 && numbers == present; }
};

struct CsvProfile {
  std::vector<CsvColumnProfile> columns;
  int64_t rows = 0;
  // Rows with another number of cells, and what is wrong with the first.
  int64_t uneven_rows = 0;
  std::string first_uneven;
  // The marks of missing values that stand there.
  std::vector<std::string> missing_marks;
};

// Goes through all rows of the files of `patterns` (find_files.h) once. Memory
// does not grow with them. Columns without a header are named by their place.
// Errors: those of FindFiles and CsvReader; INVALID_ARGUMENT without a row.
absl::StatusOr<CsvProfile> ProfileCsv(const std::vector<std::string>& patterns,
                                      char delimiter, bool header);

// A schema to start from, as the text of a Csv: columns of numbers by their
// mean and deviation, others by their values, the most frequent first; of
// columns that are of no use, a comment that says why. `answer` is the column
// to be learned: a label, or a target where `is_target`.
std::string SuggestSchema(const CsvProfile& profile,
                          const std::vector<std::string>& patterns,
                          char delimiter, bool header, absl::string_view answer,
                          bool is_target);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_PROFILE_H_
