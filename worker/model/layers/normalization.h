// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_LAYERS_NORMALIZATION_H_
#define HOLDFAST_WORKER_MODEL_LAYERS_NORMALIZATION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/layers/layer.h"

namespace holdfast {

// Errors: those of CreateLayer (create.h).
absl::StatusOr<std::unique_ptr<Layer>> CreateBatchNorm(
    const proto::Layer::BatchNorm& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend);
absl::StatusOr<std::unique_ptr<Layer>> CreateLayerNorm(
    const proto::Layer::LayerNorm& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_NORMALIZATION_H_
