// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_LAYERS_CREATE_H_
#define HOLDFAST_WORKER_MODEL_LAYERS_CREATE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/layers/layer.h"

namespace holdfast {

// Creates the layer that `config` describes, named `name`, for examples of
// `input_shape`. The layer's randomness follows from `key`, which no other
// layer has. `backend` must outlive the layer.
// Errors: INVALID_ARGUMENT, with the layer's name, when the layer cannot take
// examples of this shape, or `config` is invalid.
absl::StatusOr<std::unique_ptr<Layer>> CreateLayer(
    const proto::Layer& config, const std::string& name,
    absl::Span<const int64_t> input_shape, uint64_t key, Backend* backend);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_CREATE_H_
