// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_INPUT_DATASET_REGISTRY_H_
#define HOLDFAST_WORKER_INPUT_DATASET_REGISTRY_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/data/dataset.h"
#include "proto/job.pb.h"
#include "worker/named_factories.h"

namespace holdfast {

// The arguments of a factory that creates a source of examples.
struct DatasetContext {
  // The `options` of the job file.
  std::map<std::string, std::string> options;
};

// The user's own sources of examples that a worker binary is linked with.
// main() fills one and passes it to WorkerMain (examples/custom_data/).
class DatasetRegistry : public NamedFactories<Dataset, DatasetContext> {
 public:
  DatasetRegistry() : NamedFactories("data source", "examples/custom_data") {}
};

// Opens a data set that a job file describes: files, or a source in `registry`.
// Errors: those of Dataset::Open and DatasetRegistry::Create; INVALID_ARGUMENT
// when a source has no examples, or its examples have no values.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(
    const proto::Dataset& config, const Dataset::Options& options,
    const DatasetRegistry& registry);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_DATASET_REGISTRY_H_
