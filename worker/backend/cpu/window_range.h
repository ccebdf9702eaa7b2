// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CPU_WINDOW_RANGE_H_
#define HOLDFAST_WORKER_BACKEND_CPU_WINDOW_RANGE_H_

#include <algorithm>
#include <cstdint>

#include "worker/backend/backend.h"

namespace holdfast {

// What a window covers along one dimension of an image: the indices [begin,
// begin + size) of the image, under the indices [skipped, skipped + size) of
// the window. The rest of the window is on padding.
struct WindowRange {
  int64_t begin = 0;
  int64_t skipped = 0;
  int64_t size = 0;
};

inline WindowRange RangeAt(int64_t place, int64_t stride, int64_t pad,
                           int64_t window_size, int64_t image_size) {
  const int64_t at = place * stride - pad;
  const int64_t begin = std::max<int64_t>(at, 0);
  const int64_t end = std::min(at + window_size, image_size);
  return {begin, begin - at, std::max<int64_t>(end - begin, 0)};
}

// The range of the p-th row of window positions.
inline WindowRange RowRange(const Window& window, int64_t p) {
  return RangeAt(p, window.stride_height, window.pad_top, window.window_height,
                 window.height);
}

// The range of the q-th column.
inline WindowRange ColumnRange(const Window& window, int64_t q) {
  return RangeAt(q, window.stride_width, window.pad_left, window.window_width,
                 window.width);
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_WINDOW_RANGE_H_
