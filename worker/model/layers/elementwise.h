// SPDX-License-Identifier: Apache-2.0

// Layers whose output elements have the same order as their input elements.
#ifndef HOLDFAST_WORKER_MODEL_LAYERS_ELEMENTWISE_H_
#define HOLDFAST_WORKER_MODEL_LAYERS_ELEMENTWISE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/layers/layer.h"

namespace holdfast {

// Creates a layer for examples of `size` elements.
std::unique_ptr<Layer> CreateFlatten(int64_t size, Backend* backend);

// Errors: those of CreateLayer (create.h).
absl::StatusOr<std::unique_ptr<Layer>> CreateReshape(
    const proto::Layer::Reshape& config, const std::string& name,
    absl::Span<const int64_t> input_shape, Backend* backend);

std::unique_ptr<Layer> CreateRelu(absl::Span<const int64_t> shape,
                                  Backend* backend);
std::unique_ptr<Layer> CreateTanh(absl::Span<const int64_t> shape,
                                  Backend* backend);
std::unique_ptr<Layer> CreateSigmoid(absl::Span<const int64_t> shape,
                                     Backend* backend);

// Errors: those of CreateLayer (create.h).
absl::StatusOr<std::unique_ptr<Layer>> CreateDropout(
    const proto::Layer::Dropout& config, const std::string& name,
    absl::Span<const int64_t> shape, uint64_t key, Backend* backend);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_ELEMENTWISE_H_
