// SPDX-License-Identifier: Apache-2.0

// The windows of convolutions and poolings in tests.
#ifndef HOLDFAST_WORKER_BACKEND_CPU_TESTING_TEST_WINDOWS_H_
#define HOLDFAST_WORKER_BACKEND_CPU_TESTING_TEST_WINDOWS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/backend/backend.h"

namespace holdfast {

// The window of a size and stride over an image, padded as TensorFlow's SAME
// and VALID are; output_height is 0 if the window fits nowhere.
inline Window MakeWindow(int64_t height, int64_t width, int64_t channels,
                         int64_t window_height, int64_t window_width,
                         int64_t stride_height, int64_t stride_width,
                         bool same) {
  Window window;
  window.height = height;
  window.width = width;
  window.channels = channels;
  window.window_height = window_height;
  window.window_width = window_width;
  window.stride_height = stride_height;
  window.stride_width = stride_width;
  const auto places = [same](int64_t size, int64_t window, int64_t stride) {
    return same            ? (size + stride - 1) / stride
           : size < window ? 0
                           : (size - window) / stride + 1;
  };
  const auto pad = [same](int64_t size, int64_t window, int64_t stride,
                          int64_t places) {
    return same
               ? std::max<int64_t>((places - 1) * stride + window - size, 0) / 2
               : 0;
  };
  window.output_height = places(height, window_height, stride_height);
  window.output_width = places(width, window_width, stride_width);
  if (window.output_height == 0 || window.output_width == 0) return Window();
  window.pad_top =
      pad(height, window_height, stride_height, window.output_height);
  window.pad_left = pad(width, window_width, stride_width, window.output_width);
  return window;
}

inline std::string Describe(const Window& w) {
  return absl::StrCat("image ", w.height, "x", w.width, "x", w.channels,
                      ", window ", w.window_height, "x", w.window_width,
                      ", stride ", w.stride_height, "x", w.stride_width,
                      ", padding ", w.pad_top, " and ", w.pad_left);
}

// Odd and even sizes, windows of one pixel, as large as the image and larger,
// strides up to beyond the window, both paddings.
inline std::vector<Window> Windows(const std::vector<int64_t>& channels) {
  struct Size {
    int64_t height, width;
  };
  std::vector<Window> windows;
  for (const Size image : {Size{1, 1}, Size{5, 7}, Size{8, 4}}) {
    for (const int64_t c : channels) {
      for (const Size size : {Size{1, 1}, Size{2, 3}, Size{5, 4}}) {
        for (const Size stride : {Size{1, 1}, Size{2, 1}, Size{3, 6}}) {
          for (const bool same : {false, true}) {
            const Window window =
                MakeWindow(image.height, image.width, c, size.height,
                           size.width, stride.height, stride.width, same);
            if (window.output_height > 0) windows.push_back(window);
          }
        }
      }
    }
  }
  return windows;
}

// Calls visit(index in the window, index in the image), by the formula, for the
// pixels that the window covers at the position (p, q).
template <typename Visitor>
void VisitCovered(const Window& w, int64_t p, int64_t q, Visitor visit) {
  for (int64_t v = 0; v < w.window_height; ++v) {
    for (int64_t u = 0; u < w.window_width; ++u) {
      const int64_t y = p * w.stride_height - w.pad_top + v;
      const int64_t x = q * w.stride_width - w.pad_left + u;
      if (y < 0 || y >= w.height || x < 0 || x >= w.width) continue;
      visit(v * w.window_width + u, y * w.width + x);
    }
  }
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_TESTING_TEST_WINDOWS_H_
