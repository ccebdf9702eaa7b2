// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_CSV_DATASET_H_
#define HOLDFAST_COMMON_DATA_CSV_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/csv_loader.h"
#include "common/data/dataset.h"
#include "common/data/skipped_rows.h"

namespace holdfast {

// The examples of CSV files, in the order of the files and of their rows. All
// rows are parsed once, when the data set is opened, and kept as 32-bit cells
// in memory or in the cache.
class CsvDataset final : public Dataset {
 public:
  // Errors: those of LoadCsv.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const CsvTable& table,
                                                       const Options& options);

  int64_t num_examples() const override { return csv_.rows->rows(); }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override;
  std::string GreatestLabelPlace() const override {
    return csv_.notes.greatest_label_place();
  }
  const std::string& digest() const override { return csv_.notes.digest(); }
  Footprint footprint() const override {
    return csv_.rows->in_memory() ? Footprint{csv_.rows->bytes(), 0}
                                  : Footprint{0, csv_.rows->bytes()};
  }
  int64_t skipped_rows() const override { return skipped_.count(); }
  absl::Span<const std::string> skipped_because() const override {
    return skipped_.because();
  }

 private:
  explicit CsvDataset(LoadedCsv csv);

  const LoadedCsv csv_;
  // The schema's spec, with the number of classes.
  ExampleSpec spec_;
  const SkippedRows skipped_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_DATASET_H_
