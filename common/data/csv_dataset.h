#ifndef HOLDFAST_COMMON_DATA_CSV_DATASET_H_
#define HOLDFAST_COMMON_DATA_CSV_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/csv_reader.h"
#include "common/data/csv_schema.h"
#include "common/data/dataset.h"
#include "common/data/row_store.h"

namespace holdfast {

// The examples of CSV files, in the order of the files and of their rows. All
// rows are parsed once, when it is opened, and kept as 32-bit cells.
class CsvDataset final : public Dataset {
 public:
  // Errors: those of the system and of CsvReader; INVALID_ARGUMENT with file,
  // line and column for a row that does not fit the schema, unless
  // config.skip_bad_rows, for files whose headers differ, for a pattern that no
  // file matches, and where no row is left.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(
      const proto::Csv& config);

  int64_t num_examples() const override { return rows_->rows(); }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override;
  std::string GreatestLabelPlace() const override;
  const std::string& digest() const override { return digest_; }
  int64_t skipped_rows() const override { return skipped_; }
  absl::Span<const std::string> skipped_because() const override {
    return skipped_because_;
  }

 private:
  CsvDataset() = default;

  absl::Status ReadFile(const proto::Csv& config, const std::string& path);
  // Makes the schema of the first file; tests that others have its header.
  absl::Status TakeHeader(const proto::Csv& config, const CsvReader& reader,
                          absl::Span<const absl::string_view> header);
  absl::Status TakeRow(const CsvReader& reader,
                       absl::Span<const absl::string_view> row);
  void Digest();

  std::unique_ptr<const CsvSchema> schema_;
  // The schema's, with the number of classes.
  ExampleSpec spec_;
  std::unique_ptr<RowStore> rows_;
  std::string first_path_;
  int32_t greatest_label_ = -1;
  std::string greatest_label_place_;
  int64_t skipped_ = 0;
  std::vector<std::string> skipped_because_;
  std::string digest_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_DATASET_H_
