// SPDX-License-Identifier: Apache-2.0
#include "common/data/csv_dataset.h"

#include <utility>

#include "absl/status/status.h"
#include "common/base/status_macros.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Dataset>> CsvDataset::Open(
    const CsvTable& table, const Options& options) {
  HOLDFAST_ASSIGN_OR_RETURN(auto csv, LoadCsv(table, options.reading));
  return std::unique_ptr<Dataset>(new CsvDataset(std::move(csv)));
}

CsvDataset::CsvDataset(LoadedCsv csv)
    : csv_(std::move(csv)),
      spec_(csv_.schema->spec()),
      skipped_(csv_.notes.skipped(), {csv_.notes.skipped_because().begin(),
                                      csv_.notes.skipped_because().end()}) {
  if (spec_.num_targets == 0 && !spec_.num_classes.has_value()) {
    spec_.num_classes = csv_.notes.greatest_label() + 1;
  }
}

absl::Status CsvDataset::Read(int64_t index, const ExampleMemory& to) const {
  csv_.schema->Unpack(csv_.rows->Row(index), to);
  return absl::OkStatus();
}

}  // namespace holdfast
