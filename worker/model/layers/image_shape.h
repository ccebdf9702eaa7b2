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

// Interprets `shape` as an image's: [height, width, channels], or [height,
// width] with one channel. `kind` is the layer's kind, for messages.
// Errors: INVALID_ARGUMENT, with the layer's name, when it is neither.
absl::StatusOr<ImageShape> ImageShapeOf(absl::Span<const int64_t> shape,
                                        const char* kind,
                                        const std::string& name);

// One or two numbers in a job file: height and width.
struct Extent {
  int64_t height = 1;
  int64_t width = 1;
};

// The numbers of `field`, or `otherwise` if there are none.
// Errors: INVALID_ARGUMENT, with layer and field, when there are more than two,
// or one is 0.
absl::StatusOr<Extent> ExtentOf(
    const google::protobuf::RepeatedField<uint32_t>& values, Extent otherwise,
    const char* field, const std::string& name);

// The window of `size` over images of `shape`, padded by TensorFlow's rules,
// which proto::Layer::Padding describes. Errors: INVALID_ARGUMENT, with the
// layer's name, when it fits nowhere.
absl::StatusOr<Window> MakeWindow(const ImageShape& shape, Extent size,
                                  Extent stride, proto::Layer::Padding padding,
                                  const std::string& name);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LAYERS_IMAGE_SHAPE_H_
