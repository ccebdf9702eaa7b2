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

// How the data sets of a job are opened.
struct DataOptions {
  // The user's own sources. Must outlive the data sets.
  const DatasetRegistry* registry = nullptr;
  // Whether the examples may lack labels, because none are needed
  // (Dataset::Options).
  bool unlabeled = false;
  // The number of threads that parse files.
  int threads = 1;
  // Where unpacked data are kept. Null: in memory.
  std::shared_ptr<const DataCache> cache;
};

// Opens `dataset`, one of the data sets of `data`. Logs the progress, the
// memory that the data set takes, and the rows that are skipped. `purpose` says
// what its examples are used for, such as "train". Errors: those of
// OpenDataset.
absl::StatusOr<std::unique_ptr<Dataset>> OpenJobDataset(
    const proto::Dataset& dataset, const proto::Data& data,
    const DataOptions& options, absl::string_view purpose);

// Checks that a test set makes the ids of each field in the same way as the
// training set. Otherwise the same cell of a file would name one row of a table
// in training and another, untrained row in evaluation. A field passes if it is
// unknown how its ids are made.
// Errors: INVALID_ARGUMENT with the field and the two ways.
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

  // Opens the test set. Returns null if the job has no test set.
  // Errors: those of OpenDataset; INVALID_ARGUMENT if the examples of the test
  // set are not like those of the training set.
  absl::StatusOr<std::unique_ptr<Dataset>> OpenTestSet() const;

 private:
  JobData(const proto::Data& config, DataOptions options)
      : config_(config), options_(std::move(options)) {}

  proto::Data config_;
  DataOptions options_;
  std::unique_ptr<Dataset> train_set_;
  // If the job has a holdout: the examples held out of the training set.
  // Otherwise null.
  std::unique_ptr<SubsetDataset> held_out_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_JOB_DATA_H_
