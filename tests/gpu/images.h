// SPDX-License-Identifier: Apache-2.0

// Images and windows for comparisons of convolutions and pools.
#ifndef HOLDFAST_TESTS_GPU_IMAGES_H_
#define HOLDFAST_TESTS_GPU_IMAGES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/device_under_test.h"
#include "worker/backend/backend.h"

namespace holdfast {

// A window over m images, with its sizes, strides and padding.
struct Images {
  int64_t m;
  Window window;
  int64_t filters;
  int64_t groups;
};

// The number of positions of a window along one axis, with equal padding before
// and after.
inline int64_t Places(int64_t size, int64_t window, int64_t stride,
                      int64_t pad) {
  return (size + 2 * pad - window) / stride + 1;
}

inline Images MakeImages(int64_t m, int64_t height, int64_t width,
                         int64_t channels, int64_t window, int64_t stride,
                         int64_t pad, int64_t filters, int64_t groups) {
  Window made;
  made.height = height;
  made.width = width;
  made.channels = channels;
  made.window_height = window;
  // Not square, unless it is one pixel.
  made.window_width = window > 1 ? window - 1 : 1;
  made.stride_height = stride;
  made.stride_width = stride;
  made.pad_top = pad;
  made.pad_left = std::min(pad, made.window_width - 1);
  made.output_height = Places(height, window, stride, made.pad_top);
  made.output_width = Places(width, made.window_width, stride, made.pad_left);
  return {m, made, filters, groups};
}

// The minimum padding for ceil(size / stride) positions; if it is odd, the
// additional element is after (TensorFlow's SAME).
inline Images MakeSameImages(int64_t m, int64_t height, int64_t width,
                             int64_t channels, int64_t window, int64_t stride,
                             int64_t filters, int64_t groups) {
  const auto places = [&](int64_t size) {
    return (size + stride - 1) / stride;
  };
  const auto pad = [&](int64_t size) {
    return std::max<int64_t>(0, (places(size) - 1) * stride + window - size) /
           2;
  };
  Window made;
  made.height = height;
  made.width = width;
  made.channels = channels;
  made.window_height = window;
  made.window_width = window;
  made.stride_height = stride;
  made.stride_width = stride;
  made.pad_top = pad(height);
  made.pad_left = pad(width);
  made.output_height = places(height);
  made.output_width = places(width);
  return {m, made, filters, groups};
}

inline std::string Name(const char* what, const Images& images) {
  const Window& w = images.window;
  return absl::StrCat(what, " over ", images.m, " images of ", w.height, " x ",
                      w.width, " x ", w.channels, ", window ", w.window_height,
                      " x ", w.window_width, ", stride ", w.stride_height,
                      ", groups ", images.groups);
}

// Of many sizes, strides, paddings and groups, also without images.
inline const std::vector<Images>& AllImages() {
  static const auto* const all = new std::vector<Images>{
      MakeImages(1, 1, 1, 1, 1, 1, 0, 1, 1),
      MakeImages(2, 5, 7, 3, 3, 1, 1, 4, 1),
      MakeImages(0, 5, 7, 3, 3, 1, 1, 4, 1),
      MakeImages(3, 8, 8, 4, 3, 2, 1, 6, 2),
      MakeImages(2, 9, 6, 6, 2, 3, 0, 6, 6),
      MakeImages(5, 6, 5, 7, 1, 1, 0, 9, 1),
      MakeImages(5, 6, 5, 8, 1, 2, 0, 4, 4),
      MakeImages(4, 12, 13, 2, 5, 2, 2, 3, 1),
      // Channels that threads process four or eight at a time, with strides 1
      // and 2, in groups and depthwise.
      MakeImages(3, 6, 5, 8, 3, 1, 1, 8, 1),
      MakeImages(2, 7, 6, 12, 3, 2, 1, 16, 1),
      MakeImages(3, 5, 5, 16, 3, 1, 1, 12, 2),
      MakeImages(2, 6, 7, 8, 3, 1, 1, 8, 8),
      MakeImages(3, 5, 6, 12, 1, 2, 0, 8, 1),
      MakeImages(9, 6, 5, 8, 1, 1, 0, 16, 1),
      MakeImages(2, 9, 8, 4, 3, 1, 0, 3, 1),
      MakeImages(DeviceIsSlow() ? 1 : 33, 28, 28, 16, 5, 1, 2, 32, 1),
      // More padding after than before; and pixels at the end that no window
      // covers.
      MakeSameImages(3, 8, 10, 4, 3, 2, 6, 2),
      MakeSameImages(3, 7, 10, 4, 2, 3, 8, 1),
      MakeSameImages(2, 9, 6, 3, 4, 1, 5, 1),
  };
  return *all;
}

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_IMAGES_H_
