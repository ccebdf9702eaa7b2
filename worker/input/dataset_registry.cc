// SPDX-License-Identifier: Apache-2.0
#include "worker/input/dataset_registry.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/shape.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(
    const proto::Dataset& config, const Dataset::Options& options,
    const DatasetRegistry& registry) {
  if (!config.has_registered()) return Dataset::Open(config, options);
  const std::string& name = config.registered().name();
  DatasetContext context;
  context.options.insert(config.registered().options().begin(),
                         config.registered().options().end());
  auto dataset = registry.Create(name, context);
  if (!dataset.ok()) return dataset.status();
  const std::vector<int64_t>& shape = (*dataset)->spec().shape;
  if ((*dataset)->num_examples() < 1 ||
      std::any_of(shape.begin(), shape.end(),
                  [](int64_t dimension) { return dimension < 1; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("data source \"", name, "\" has ",
                     (*dataset)->num_examples(), " examples of the shape ",
                     ShapeString(shape), "; there must be at least one"));
  }
  return dataset;
}

}  // namespace holdfast
