// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_CSV_LOADER_H_
#define HOLDFAST_COMMON_DATA_CSV_LOADER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/data/csv_schema.h"
#include "common/data/row_store.h"
#include "common/data/unpack.h"
#include "proto/data_cache.pb.h"
#include "proto/job.pb.h"

namespace holdfast {

// The files to be read, and how to interpret them.
struct CsvTable {
  proto::Csv config;
  // Names of the columns as if from a header, if config.header is false and the
  // format names them. If empty, columns are known by their positions.
  std::vector<std::string> names;
};

// All rows of CSV files, parsed.
struct LoadedCsv {
  std::unique_ptr<const CsvSchema> schema;
  std::unique_ptr<const RowStore> rows;
  proto::CsvNotes notes;
};

// Parses table.config.files in their order, or takes their rows from the cache;
// keeps the rows in the cache if there is one, and in memory otherwise.
// Errors: those of the system, CsvBlocks and DataCache; INVALID_ARGUMENT with
// file, line and column for the first row that does not fit the schema, unless
// skip_bad_rows is set; INVALID_ARGUMENT also for files whose headers differ,
// for a pattern that matches no file, and if no row is left.
absl::StatusOr<LoadedCsv> LoadCsv(const CsvTable& table,
                                  const ReadingOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_LOADER_H_
