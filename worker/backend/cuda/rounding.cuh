// SPDX-License-Identifier: Apache-2.0

// Functions that convert a value to the format in which the factors of products
// are kept, and types of values that are kept in 16 bits.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_ROUNDING_CUH_
#define HOLDFAST_WORKER_BACKEND_CUDA_ROUNDING_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "worker/backend/cuda/kernels.h"
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

// Values in 16 bits, in memory. Kernels load them as they are and convert them
// where they compute, so that a thread's loads do not wait for one another.
struct Bfloat16 {
  uint16_t half;
  __device__ operator float() const { return halves::FromBfloat16(half); }
};

struct Float16 {
  uint16_t half;
  __device__ operator float() const { return halves::FromFloat16(half); }
};

// Whether T is one of Types.
template <typename T, typename... Types>
inline constexpr bool kIsAmong = (std::is_same_v<T, Types> || ...);

// Calls function(pointer), where the pointer has the type of the values.
template <typename Function>
cudaError_t WithType(const Input& x, Function function) {
  switch (x.precision) {
    case Precision::kBfloat16:
      return function(static_cast<const Bfloat16*>(x.values));
    case Precision::kFloat16:
      return function(static_cast<const Float16*>(x.values));
    case Precision::kFloat32:
      break;
  }
  return function(static_cast<const float*>(x.values));
}

// The same for two matrices. Their halves must have the same precision;
// otherwise this is an error.
template <typename Function>
cudaError_t WithTypes(const Input& x, const Input& y, Function function) {
  return WithType(x, [&](const auto* x) {
    return WithType(y, [&](const auto* y) -> cudaError_t {
      using X = decltype(x);
      using Y = decltype(y);
      if constexpr (std::is_same_v<X, Y> || kIsAmong<const float*, X, Y>) {
        return function(x, y);
      } else {
        return cudaErrorInvalidValue;
      }
    });
  });
}

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
