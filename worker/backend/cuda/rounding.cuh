// SPDX-License-Identifier: Apache-2.0

// Functions that convert a value to the format in which the factors of products
// are kept.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_ROUNDING_CUH_
#define HOLDFAST_WORKER_BACKEND_CUDA_ROUNDING_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/halves.h"
#include "worker/backend/precision.h"

namespace holdfast {
namespace kernels {

struct AsFloat32 {
  using Given = float;
  using Value = float;
  __device__ float operator()(float value) const { return value; }
};

struct AsBfloat16 {
  using Given = float;
  using Value = uint16_t;
  __device__ uint16_t operator()(float value) const {
    return halves::ToBfloat16(value);
  }
};

struct AsFloat16 {
  using Given = float;
  using Value = uint16_t;
  __device__ uint16_t operator()(float value) const {
    return halves::ToFloat16(value);
  }
};

// For values that have been rounded already.
struct AsItIs {
  using Given = uint16_t;
  using Value = uint16_t;
  __device__ uint16_t operator()(uint16_t value) const { return value; }
};

// Calls function with the conversion to `precision`.
template <typename Function>
cudaError_t InPrecision(Precision precision, Function function) {
  switch (precision) {
    case Precision::kBfloat16:
      return function(AsBfloat16());
    case Precision::kFloat16:
      return function(AsFloat16());
    case Precision::kFloat32:
      break;
  }
  return function(AsFloat32());
}

}  // namespace kernels
}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_ROUNDING_CUH_
