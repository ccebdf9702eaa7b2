// SPDX-License-Identifier: Apache-2.0
#include "common/data/dataset.h"

#include <utility>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/data/array_dataset.h"
#include "common/data/criteo.h"
#include "common/data/csv_dataset.h"
#include "common/data/idx.h"
#include "common/data/image_dataset.h"
#include "common/data/libsvm_dataset.h"
#include "common/data/npy.h"
#include "common/data/tfrecord_dataset.h"

namespace holdfast {
namespace {

// `config` is an Idx or Npy, which have the same parts, one file each.
template <typename Config>
absl::StatusOr<std::unique_ptr<Dataset>> OpenArrays(
    const Config& config, const std::string& inputs,
    absl::StatusOr<TypedArray> (*read)(const std::string& path,
                                       const ReadingOptions& options),
    const Dataset::Options& options) {
  ExampleArrays arrays;
  HOLDFAST_ASSIGN_OR_RETURN(auto read_inputs, read(inputs, options.reading));
  arrays.inputs = std::move(read_inputs);
  for (const auto& [path, array] :
       {std::pair(&config.labels(), &arrays.labels),
        std::pair(&config.targets(), &arrays.targets),
        std::pair(&config.weights(), &arrays.weights)}) {
    if (path->empty()) continue;
    HOLDFAST_ASSIGN_OR_RETURN(auto made, read(*path, options.reading));
    *array = std::move(made);
  }
  return ArrayDataset::Create(std::move(arrays), options);
}

}  // namespace

Dataset::Options Dataset::OptionsOf(const proto::Data& data) {
  Options options;
  if (data.has_scale()) options.scale = data.scale();
  options.mean = data.normalization().mean();
  if (data.normalization().has_stddev()) {
    options.stddev = data.normalization().stddev();
  }
  return options;
}

InputScaling Dataset::Options::ScalingOf(ElementType type) const {
  return {scale.value_or(type == ElementType::kUint8 ? 1.0f / 255.0f : 1.0f),
          mean, stddev};
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::OpenIdx(
    const std::string& images, const std::string& labels,
    const Options& options) {
  proto::Dataset config;
  config.mutable_idx()->set_images(images);
  config.mutable_idx()->set_labels(labels);
  return Open(config, options);
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(
    const proto::Dataset& config, const Options& options) {
  switch (config.kind_case()) {
    case proto::Dataset::kIdx:
      return OpenArrays(config.idx(), config.idx().images(), &ReadIdx, options);
    case proto::Dataset::kNpy:
      return OpenArrays(config.npy(), config.npy().inputs(), &ReadNpy, options);
    case proto::Dataset::kCsv:
      return CsvDataset::Open({config.csv(), {}}, options);
    case proto::Dataset::kCriteo:
      return CsvDataset::Open(CriteoTable(config.criteo(), options.unlabeled),
                              options);
    case proto::Dataset::kTfrecord:
      return TfRecordDataset::Open(config.tfrecord(), options);
    case proto::Dataset::kImages:
      return ImageDataset::Open(config.images(), options);
    case proto::Dataset::kLibsvm:
      return LibsvmDataset::Open(config.libsvm(), options);
    case proto::Dataset::kRegistered:
    case proto::Dataset::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the data set names no files");
}

}  // namespace holdfast
