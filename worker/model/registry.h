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

// What a model is made from.
struct ModelContext {
  // Of one example, without a batch dimension.
  std::vector<int64_t> example_shape;
  // Labels are below it, where the data tell.
  std::optional<int64_t> num_classes;
  // Where it is not 0, batches have so many targets for each example in place
  // of a label.
  int64_t num_targets = 0;
  // Whether batches have weights, which the model must heed or refuse.
  bool weighted = false;
  // The ids that an example has, and whether each has a value. A model whose
  // Tables() want none is not given them.
  std::vector<IdField> id_fields;
  bool id_values = false;
  // The job's: what is random in training follows from it (Model). All workers
  // have the same.
  uint64_t seed = 0;
  // The arithmetic that the worker was told to use, for a model that wants it.
  // It outlives the model.
  Backend* backend = nullptr;
  // The `options` of the job file.
  std::map<std::string, std::string> options;
};

// The models of the user's own that a worker binary was linked with. main()
// fills one and hands it to WorkerMain (examples/custom_model/).
class ModelRegistry : public NamedFactories<Model, ModelContext> {
 public:
  ModelRegistry() : NamedFactories("model", "examples/custom_model") {}
};

// The model of a job file for such examples: a sequential or a click model, or
// one of `registry`. `seed` and `backend` are those of ModelContext. Errors:
// those of CreateSequential, CreateClickModel and ModelRegistry::Create.
absl::StatusOr<std::unique_ptr<Model>> CreateModel(
    const proto::Model& config, const ExampleSpec& examples, uint64_t seed,
    Backend* backend, const ModelRegistry& registry);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_REGISTRY_H_
