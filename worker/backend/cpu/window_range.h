// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CPU_WINDOW_RANGE_H_
#define HOLDFAST_WORKER_BACKEND_CPU_WINDOW_RANGE_H_

#include <algorithm>
#include <cstdint>

#include "worker/backend/backend.h"

namespace holdfast {

// The part of an image that a window covers along one dimension. The indices
// [begin, begin + size) of the image are under the indices [skipped, skipped +
// size) of the window; the rest of the window is over padding.
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

// Returns the rows of the image that a window covers at the p-th row of
// positions.
inline WindowRange RowRange(const Window& window, int64_t p) {
  return RangeAt(p, window.stride_height, window.pad_top, window.window_height,
                 window.height);
}

// Returns the columns of the image that a window covers at the q-th column of
// positions.
inline WindowRange ColumnRange(const Window& window, int64_t q) {
  return RangeAt(q, window.stride_width, window.pad_left, window.window_width,
                 window.width);
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_WINDOW_RANGE_H_
