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

// What a source of examples is made from.
struct DatasetContext {
  // The `options` of the job file.
  std::map<std::string, std::string> options;
};

// The sources of examples of the user's own that a worker binary was linked
// with. main() fills one and hands it to WorkerMain (examples/custom_data/).
class DatasetRegistry : public NamedFactories<Dataset, DatasetContext> {
 public:
  DatasetRegistry() : NamedFactories("data source", "examples/custom_data") {}
};

// The data set of a job file: files, or a source of `registry`.
// Errors: those of Dataset::Open and DatasetRegistry::Create; INVALID_ARGUMENT
// when a source has no examples, or they have no values.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(
    const proto::Dataset& config, const Dataset::Options& options,
    const DatasetRegistry& registry);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_DATASET_REGISTRY_H_
