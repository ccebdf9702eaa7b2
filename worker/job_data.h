// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_JOB_DATA_H_
#define HOLDFAST_WORKER_JOB_DATA_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/data/data_cache.h"
#include "common/data/dataset.h"
#include "common/data/example_source.h"
#include "common/data/subset_dataset.h"
#include "proto/job.pb.h"
#include "worker/input/dataset_registry.h"

namespace holdfast {

// How data sets are opened.
struct DataOptions {
  // The user's own sources. Must outlive the data sets.
  const DatasetRegistry* registry = nullptr;
  // Labels are not needed (Dataset::Options).
  bool unlabeled = false;
  // The number of threads that parse.
  int threads = 1;
  // Null: unpacked data are kept in memory.
  std::shared_ptr<const DataCache> cache;
};

// Opens `dataset`, one of those in `data`. Logs the progress, the memory that
// it takes, and the rows that it skips. `purpose` is what its examples are used
// for, such as "train". Errors: those of OpenDataset.
absl::StatusOr<std::unique_ptr<Dataset>> OpenJobDataset(
    const proto::Dataset& dataset, const proto::Data& data,
    const DataOptions& options, absl::string_view purpose);

// Checks that a test set makes the ids of each field as the training set does:
// otherwise the same cell would name one row in training and a different,
// untrained one in evaluation. Fields of unknown origin pass.
// Errors: INVALID_ARGUMENT with the field and both origins.
absl::Status CheckIdsAlike(const std::vector<IdField>& tested,
                           const std::vector<IdField>& trained);

// The data sets of a job.
//
// Thread-compatible.
class JobData {
 public:
  // Opens the training set.
  static absl::StatusOr<JobData> Open(const proto::Data& config,
                                      const DataOptions& options);

  const Dataset& train_set() const { return *train_set_; }

  // Opens the test set. Returns null if the job has none.
  // Errors: those of OpenDataset; INVALID_ARGUMENT if its examples are not like
  // those of the training set.
  absl::StatusOr<std::unique_ptr<Dataset>> OpenTestSet() const;

 private:
  JobData(const proto::Data& config, DataOptions options)
      : config_(config), options_(std::move(options)) {}

  proto::Data config_;
  DataOptions options_;
  std::unique_ptr<Dataset> train_set_;
  // With a holdout: the examples held out of the training set.
  std::unique_ptr<SubsetDataset> held_out_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_JOB_DATA_H_
