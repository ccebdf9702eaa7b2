// SPDX-License-Identifier: Apache-2.0

// Converts arguments of DeviceMath to those of kernels.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_KERNEL_ARGUMENTS_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_KERNEL_ARGUMENTS_H_

#include "worker/backend/backend.h"
#include "worker/backend/cuda/kernels.h"

namespace holdfast {

inline kernels::WindowShape Shape(const Window& window) {
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  return {narrow(window.height),       narrow(window.width),
          narrow(window.channels),     narrow(window.window_height),
          narrow(window.window_width), narrow(window.stride_height),
          narrow(window.stride_width), narrow(window.pad_top),
          narrow(window.pad_left),     narrow(window.output_height),
          narrow(window.output_width)};
}

// Where the values of a matrix are written; null if it has a rounded copy
// alone.
inline float* ValuesOf(Matrix matrix) {
  return matrix.rounded_alone ? nullptr : matrix.data;
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_KERNEL_ARGUMENTS_H_
