// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_REGISTRY_H_
#define HOLDFAST_WORKER_MODEL_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/data/example_source.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/model.h"
#include "worker/named_factories.h"

namespace holdfast {

// The arguments of a factory that creates a model.
struct ModelContext {
  // The shape of one example, without a batch dimension.
  std::vector<int64_t> example_shape;
  // Labels are in [0, num_classes). Absent if the data do not say how many
  // classes there are.
  std::optional<int64_t> num_classes;
  // If not 0, batches have this many targets for each example instead of a
  // label.
  int64_t num_targets = 0;
  // Whether batches have weights, which the model must either apply or refuse.
  bool weighted = false;
  // The fields of ids that an example has, and whether each id has a value. A
  // batch has ids only if the model has Tables() that use them.
  std::vector<IdField> id_fields;
  bool id_values = false;
  // The job's seed, from which randomness in training follows (Model). The same
  // on all workers.
  uint64_t seed = 0;
  // The backend that the worker was told to use, for models that use one. It
  // outlives the model.
  Backend* backend = nullptr;
  // The `options` of the job file.
  std::map<std::string, std::string> options;
};

// The user's own models that a worker binary is linked with. main() fills one
// and passes it to WorkerMain (examples/custom_model/).
class ModelRegistry : public NamedFactories<Model, ModelContext> {
 public:
  ModelRegistry() : NamedFactories("model", "examples/custom_model") {}
};

// Creates the model of a job file for examples like `examples`: a sequential or
// a click model, or one in `registry`. `seed` and `backend` are as in
// ModelContext. Errors: those of CreateSequential, CreateClickModel and
// ModelRegistry::Create.
absl::StatusOr<std::unique_ptr<Model>> CreateModel(
    const proto::Model& config, const ExampleSpec& examples, uint64_t seed,
    Backend* backend, const ModelRegistry& registry);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_REGISTRY_H_
