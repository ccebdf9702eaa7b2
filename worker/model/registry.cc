#include "worker/model/registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/model/sequential.h"

namespace holdfast {

absl::Status ModelRegistry::Register(absl::string_view name, Factory factory) {
  const bool added =
      factories_.emplace(std::string(name), std::move(factory)).second;
  if (!added) {
    return absl::AlreadyExistsError(
        absl::StrCat("a model is registered as \"", name, "\" already"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> ModelRegistry::Create(
    absl::string_view name, const ModelContext& context) const {
  const auto found = factories_.find(name);
  if (found == factories_.end()) {
    const std::string known = absl::StrJoin(
        factories_, ", ", [](std::string* out, const auto& entry) {
          absl::StrAppend(out, "\"", entry.first, "\"");
        });
    return absl::NotFoundError(absl::StrCat(
        "no model is registered as \"", name, "\" in this binary; it has ",
        known.empty() ? "none of the user's own" : known,
        "; run a worker that is linked with it, as examples/custom_model is"));
  }
  absl::StatusOr<std::unique_ptr<Model>> model = found->second(context);
  if (!model.ok()) {
    return absl::Status(
        model.status().code(),
        absl::StrCat("model \"", name, "\": ", model.status().message()));
  }
  return model;
}

absl::StatusOr<std::unique_ptr<Model>> CreateModel(
    const proto::Model& config, const ExampleSpec& examples, uint64_t seed,
    Backend* backend, const ModelRegistry& registry) {
  switch (config.kind_case()) {
    case proto::Model::kSequential:
      return Sequential::Create(config.sequential(), examples, seed, backend);
    case proto::Model::kRegistered: {
      ModelContext context;
      context.example_shape = examples.shape;
      context.num_classes = examples.num_classes;
      context.num_targets = examples.num_targets;
      context.weighted = examples.weighted;
      context.seed = seed;
      context.backend = backend;
      context.options.insert(config.registered().options().begin(),
                             config.registered().options().end());
      return registry.Create(config.registered().name(), context);
    }
    case proto::Model::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the model is neither sequential nor registered");
}

}  // namespace holdfast
