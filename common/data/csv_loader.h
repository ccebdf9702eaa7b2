#ifndef HOLDFAST_COMMON_DATA_CSV_LOADER_H_
#define HOLDFAST_COMMON_DATA_CSV_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/data/csv_schema.h"
#include "common/data/row_store.h"
#include "proto/job.pb.h"

namespace holdfast {

// All rows of CSV files, parsed.
struct LoadedCsv {
  std::unique_ptr<const CsvSchema> schema;
  std::unique_ptr<const RowStore> rows;
  // -1 and empty where there are no labels.
  int32_t greatest_label = -1;
  std::string greatest_label_place;
  // Rows that do not fit, and what is wrong with the first few.
  int64_t skipped = 0;
  std::vector<std::string> skipped_because;
  // SHA-256, in hexadecimal, of the rows.
  std::string digest;
};

// Parses config.files in their order, with `threads` threads, whose number does
// not show in the result.
// Errors: those of the system and of CsvBlocks; INVALID_ARGUMENT with file,
// line and column for the first row that does not fit the schema, unless
// config.skip_bad_rows, for files whose headers differ, for a pattern that no
// file matches, and where no row is left.
absl::StatusOr<LoadedCsv> LoadCsv(const proto::Csv& config, int threads);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_LOADER_H_
