// SPDX-License-Identifier: Apache-2.0
#include "worker/model/registry.h"

#include "absl/status/status.h"
#include "worker/model/click_model.h"
#include "worker/model/sequential.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Model>> CreateModel(
    const proto::Model& config, const ExampleSpec& examples, uint64_t seed,
    Backend* backend, const ModelRegistry& registry) {
  switch (config.kind_case()) {
    case proto::Model::kSequential:
      return CreateSequential(config.sequential(), examples, seed, backend);
    case proto::Model::kRegistered: {
      ModelContext context;
      context.example_shape = examples.shape;
      context.num_classes = examples.num_classes;
      context.num_targets = examples.num_targets;
      context.weighted = examples.weighted;
      context.id_fields = examples.id_fields;
      context.id_values = examples.id_values;
      context.seed = seed;
      context.backend = backend;
      context.options.insert(config.registered().options().begin(),
                             config.registered().options().end());
      return registry.Create(config.registered().name(), context);
    }
    case proto::Model::kLogisticRegression:
    case proto::Model::kFactorizationMachine:
    case proto::Model::kWideAndDeep:
    case proto::Model::kDeepFm:
    case proto::Model::kDlrm:
      return CreateClickModel(config, examples, seed, backend);
    case proto::Model::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the job has no model");
}

}  // namespace holdfast
