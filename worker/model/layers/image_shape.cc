// SPDX-License-Identifier: Apache-2.0
#include "worker/model/layers/image_shape.h"

#include <algorithm>

#include "common/tensor/shape.h"

namespace holdfast {
namespace {

// The window's positions along one dimension.
struct Places {
  int64_t count = 0;
  int64_t pad_before = 0;
};

Places PlacesOf(int64_t size, int64_t window, int64_t stride,
                proto::Layer::Padding padding) {
  if (padding == proto::Layer::SAME) {
    const int64_t count = (size - 1) / stride + 1;
    const int64_t lacking = (count - 1) * stride + window - size;
    return {count, std::max<int64_t>(lacking, 0) / 2};
  }
  return {size < window ? 0 : (size - window) / stride + 1, 0};
}

}  // namespace

absl::StatusOr<ImageShape> ImageShapeOf(absl::Span<const int64_t> shape,
                                        const char* kind,
                                        const std::string& name) {
  if (shape.size() == 2) return ImageShape{shape[0], shape[1], 1};
  if (shape.size() == 3) return ImageShape{shape[0], shape[1], shape[2]};
  return LayerError(name, kind,
                    " takes images, [height,width,channels] or "
                    "[height,width], but its input has the shape ",
                    ShapeString(shape));
}

absl::StatusOr<Extent> ExtentOf(
    const google::protobuf::RepeatedField<uint32_t>& values, Extent otherwise,
    const char* field, const std::string& name) {
  if (values.size() > 2) {
    return LayerError(
        name, field, " is ", values.size(),
        " numbers, but must be one number or two, [height, width]");
  }
  if (std::find(values.begin(), values.end(), 0) != values.end()) {
    return LayerError(name, field, " is 0, but must be at least 1");
  }
  if (values.empty()) return otherwise;
  return Extent{values[0], values[values.size() - 1]};
}

absl::StatusOr<Window> MakeWindow(const ImageShape& shape, Extent size,
                                  Extent stride, proto::Layer::Padding padding,
                                  const std::string& name) {
  const Places down =
      PlacesOf(shape.height, size.height, stride.height, padding);
  const Places across =
      PlacesOf(shape.width, size.width, stride.width, padding);
  if (down.count == 0 || across.count == 0) {
    return LayerError(name, "a window of ", size.height, "x", size.width,
                      " is larger than its input, ", shape.height, "x",
                      shape.width,
                      " places; make it smaller, or set padding: SAME");
  }
  Window window;
  window.height = shape.height;
  window.width = shape.width;
  window.channels = shape.channels;
  window.window_height = size.height;
  window.window_width = size.width;
  window.stride_height = stride.height;
  window.stride_width = stride.width;
  window.pad_top = down.pad_before;
  window.pad_left = across.pad_before;
  window.output_height = down.count;
  window.output_width = across.count;
  return window;
}

}  // namespace holdfast
