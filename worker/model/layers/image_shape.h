// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_LAYERS_IMAGE_SHAPE_H_
#define HOLDFAST_WORKER_MODEL_LAYERS_IMAGE_SHAPE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/layers/layer.h"

namespace holdfast {

struct ImageShape {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
};

// Interprets `shape` as the shape of an image: [height, width, channels], or
// [height, width] with one channel. `kind` is the layer's kind, for messages.
// Errors: INVALID_ARGUMENT, with the layer's name, when `shape` is neither.
absl::StatusOr<ImageShape> ImageShapeOf(absl::Span<const int64_t> shape,
                                        const char* kind,
                                        const std::string& name);

// A height and a width, which a job file gives as one number for both or as two
// numbers.
struct Extent {
  int64_t height = 1;
  int64_t width = 1;
};

// Returns the extent that the `values` of `field` give, or `otherwise` if there
// are no values. `name` is the layer's.
// Errors: INVALID_ARGUMENT, with the layer's name and `field`, when there are
// more than two values, or one is 0.
absl::StatusOr<Extent> ExtentOf(
    const google::protobuf::RepeatedField<uint32_t>& values, Extent otherwise,
    const char* field, const std::string& name);

// Returns the window of `size` that moves over images of `shape`, which are
// padded by TensorFlow's rules (proto::Layer::Padding). Errors:
// INVALID_ARGUMENT, with the layer's name, when there is no position at which
// the window fits.
absl::StatusOr<Window> MakeWindow(const ImageShape& shape, Extent size,
                                  Extent stride, proto::Layer::Padding padding,
                                  const std::string& name);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_IMAGE_SHAPE_H_
