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

// Which files are read, and as what.
struct CsvTable {
  proto::Csv config;
  // Of the columns, where config.header is false and the format names them: as
  // if they stood in a header. Empty: columns are known by their places.
  std::vector<std::string> names;
};

// All rows of CSV files, parsed.
struct LoadedCsv {
  std::unique_ptr<const CsvSchema> schema;
  std::unique_ptr<const RowStore> rows;
  proto::CsvNotes notes;
};

// Parses table.config.files in their order, or takes what the cache has of
// them; keeps the rows in the cache if there is one, and in memory otherwise.
// Errors: those of the system, CsvBlocks and DataCache; INVALID_ARGUMENT with
// file, line and column for the first row that does not fit the schema, unless
// skip_bad_rows, for files whose headers differ, for a pattern that no
// file matches, and where no row is left.
absl::StatusOr<LoadedCsv> LoadCsv(const CsvTable& table,
                                  const ReadingOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_LOADER_H_
