// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_WORKSHOP_H_
#define HOLDFAST_WORKER_WORKSHOP_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/data/dataset.h"
#include "common/data/example_source.h"
#include "worker/backend/backend.h"
#include "worker/input/batch_pipeline.h"
#include "worker/input/image_augmenter.h"
#include "worker/job_data.h"
#include "worker/model/model.h"
#include "worker/model/registry.h"
#include "worker/worker_config.h"

namespace holdfast {

// The data and the model: everything that a worker has before it connects to
// the cluster.
struct Workshop {
  std::optional<JobData> data;
  // Absent if examples are not changed.
  std::optional<ImageAugmenter> augmenter;
  // The test set. Null if the job has none, or if the worker does not evaluate.
  std::unique_ptr<Dataset> test_set;
  // Indexed by replica. The first, which reads the others' memory, is destroyed
  // first.
  std::vector<std::unique_ptr<Backend>> backends;
  std::unique_ptr<Model> model;
  // For evaluations during training, if there is a test set.
  std::unique_ptr<Backend> evaluation_backend;
  std::unique_ptr<Model> evaluation_model;

  const Dataset& train_set() const { return data->train_set(); }

  ~Workshop() {
    model.reset();
    for (std::unique_ptr<Backend>& backend : backends) backend.reset();
  }
};

// Opens the data sets of the job; the test set only for the chief. Errors:
// those of JobData::Open and JobData::OpenTestSet.
absl::Status ReadData(const WorkerConfig& config, Workshop* workshop);

// Creates a backend for each place of the device, and one for evaluations if
// there is a test set, after ReadData. Errors: those of CreateBackend and
// ProvePeers.
absl::Status MakeBackends(const WorkerConfig& config, Workshop* workshop);

// Creates the augmenter, if the job wants one, after ReadData. Errors: those of
// ImageAugmenter::Create, with the name of the job file's field.
absl::Status MakeAugmenter(const WorkerConfig& config, Workshop* workshop);

// Creates the models, after MakeBackends. Errors: those of
// CreateReplicatedModel and CheckScores. If the data have more classes than the
// model, the error names the place of the greatest label.
absl::Status MakeModels(const WorkerConfig& config,
                        const ModelRegistry& registry, Workshop* workshop);

// Starts to make the batches of `examples`, which are those of the train set,
// after MakeModels. `examples` and `workshop` must outlive the pipeline.
// Errors: those of BatchPipeline::Start.
absl::StatusOr<std::unique_ptr<BatchPipeline>> StartBatches(
    const WorkerConfig& config, const Workshop& workshop,
    const ExampleSource* examples);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_WORKSHOP_H_
