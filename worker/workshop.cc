// SPDX-License-Identifier: Apache-2.0
#include "worker/workshop.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/data/typed_array.h"
#include "proto/job.pb.h"
#include "worker/backend/device.h"
#include "worker/backend/pinned_ranges.h"
#include "worker/backend/proof.h"
#include "worker/model/replicated.h"
#include "worker/trainer/batch_rows.h"
#include "worker/trainer/scores.h"

namespace holdfast {
namespace {

// Creates a model for the examples and labels of `data`.
absl::Status MakeModel(const WorkerConfig& config,
                       const ModelRegistry& registry, const Dataset& data,
                       const std::vector<Backend*>& backends,
                       std::unique_ptr<Model>* model) {
  const auto make = [&](const ExampleSpec& examples) {
    return CreateReplicatedModel(config.job.model(), examples,
                                 config.job.seed(), backends, registry);
  };
  auto made = make(data.spec());
  if (made.ok()) {
    *model = *std::move(made);
    return absl::OkStatus();
  }
  // If the model would also accept fewer classes, a label in the data may be
  // wrong.
  ExampleSpec any_classes = data.spec();
  any_classes.num_classes.reset();
  if (data.GreatestLabelPlace().empty() || !make(any_classes).ok()) {
    return made.status();
  }
  return absl::Status(made.status().code(),
                      absl::StrCat(made.status().message(), ", by the ",
                                   data.GreatestLabelPlace()));
}

}  // namespace

absl::Status ReadData(const WorkerConfig& config, Workshop* workshop) {
  HOLDFAST_ASSIGN_OR_RETURN(auto data,
                            JobData::Open(config.job.data(), config.reading));
  workshop->data = std::move(data);
  if (!config.is_chief) return absl::OkStatus();
  HOLDFAST_ASSIGN_OR_RETURN(auto test_set, workshop->data->OpenTestSet());
  workshop->test_set = std::move(test_set);
  return absl::OkStatus();
}

absl::Status MakeBackends(const WorkerConfig& config, Workshop* workshop) {
  DeviceOptions options = config.device_options;
  options.pinned = std::make_shared<PinnedRanges>();
  const auto make = [&](const Place& place, std::unique_ptr<Backend>* backend) {
    HOLDFAST_ASSIGN_OR_RETURN(auto made, CreateBackend(place, options));
    *backend = std::move(made);
    (*backend)->SetTracer(config.tracer);
    return absl::OkStatus();
  };
  std::vector<Backend*> backends;
  std::vector<std::string> names;
  for (const Place& place : config.device.places) {
    HOLDFAST_RETURN_IF_ERROR(make(place, &workshop->backends.emplace_back()));
    backends.push_back(workshop->backends.back().get());
    names.push_back(place.has_value() ? absl::StrCat("cuda:", *place) : "cpu");
  }
  HOLDFAST_RETURN_IF_ERROR(ProvePeers(backends, names));
  if (workshop->test_set == nullptr) return absl::OkStatus();
  return make(config.device.places.front(), &workshop->evaluation_backend);
}

absl::Status MakeAugmenter(const WorkerConfig& config, Workshop* workshop) {
  const proto::Data& data = config.job.data();
  if (!data.has_augmentation()) return absl::OkStatus();
  ImageAugmenter::Options options;
  options.seed = config.job.seed();
  options.max_shift = data.augmentation().shift();
  options.horizontal_flip = data.augmentation().horizontal_flip();
  // The scaled value of a pixel of 0, which does not depend on the factor.
  const Dataset::Options inputs = Dataset::OptionsOf(data);
  options.fill = InputScaling{1, inputs.mean, inputs.stddev}.Of(0);
  auto made =
      ImageAugmenter::Create(workshop->train_set().spec().shape, options);
  if (made.ok()) workshop->augmenter = *made;
  return made.ok() ? absl::OkStatus()
                   : absl::Status(made.status().code(),
                                  absl::StrCat("data.augmentation: ",
                                               made.status().message()));
}

absl::Status MakeModels(const WorkerConfig& config,
                        const ModelRegistry& registry, Workshop* workshop) {
  std::vector<Backend*> backends;
  for (const auto& backend : workshop->backends) {
    backends.push_back(backend.get());
  }
  absl::Status status = MakeModel(config, registry, workshop->train_set(),
                                  backends, &workshop->model);
  if (!status.ok()) return status;
  // Every worker checks this, because each may have to evaluate in the chief's
  // place.
  status = CheckScores(config.job.evaluation(), workshop->model->Outputs(),
                       workshop->train_set().spec());
  if (!status.ok() || workshop->test_set == nullptr) return status;
  const bool more_classes = workshop->test_set->spec().num_classes >
                            workshop->train_set().spec().num_classes;
  return MakeModel(config, registry,
                   more_classes ? *workshop->test_set : workshop->train_set(),
                   {workshop->evaluation_backend.get()},
                   &workshop->evaluation_model);
}

absl::StatusOr<std::unique_ptr<BatchPipeline>> StartBatches(
    const WorkerConfig& config, const Workshop& workshop,
    const ExampleSource* examples) {
  BatchPipeline::Options options;
  options.batch_size = config.job.batch_size();
  options.short_last_batch = config.job.data().short_last_batch();
  options.seed = config.job.seed();
  options.shuffle = ShuffleOf(config.job.data());
  options.by_ticket = config.replicas.by_ticket();
  options.seats_per_step = config.replicas.seats();
  options.seats.clear();
  for (uint32_t seat = config.replica; seat < config.replicas.seats();
       seat += config.replicas.total) {
    options.seats.push_back(seat);
  }
  if (config.job.data().has_prefetch()) {
    options.prefetch = config.job.data().prefetch();
  }
  options.threads = config.reading.threads;
  options.table_fields = FieldsOf(*workshop.model);
  // Memory from which copies to a GPU can begin directly.
  options.allocate = [backend = workshop.backends.front().get()](int64_t size) {
    return backend->AllocateHost(size);
  };
  if (workshop.augmenter.has_value()) options.augmenter = &*workshop.augmenter;
  return BatchPipeline::Start(examples, options);
}

}  // namespace holdfast
