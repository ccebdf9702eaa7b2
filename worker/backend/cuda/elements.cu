// SPDX-License-Identifier: Apache-2.0

// Elementwise operations.
#include <cmath>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.cuh"
#include "worker/backend/cuda/maps.cuh"
#include "worker/backend/halves.h"

namespace holdfast {
namespace kernels {
namespace {

// common/base/random.h on the GPU, with the same bits.
__device__ uint4 Philox4x32(uint4 counter, uint2 key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53;
  constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    counter = {
        __umulhi(kMultiplier1, counter.z) ^ counter.y ^ key.x,
        kMultiplier1 * counter.z,
        __umulhi(kMultiplier0, counter.x) ^ counter.w ^ key.y,
        kMultiplier0 * counter.x,
    };
    key.x += kWeyl0;
    key.y += kWeyl1;
  }
  return counter;
}

}  // namespace

cudaError_t AddBias(cudaStream_t stream, const float* bias, int64_t m,
                    int64_t n, float* y) {
  return MapColumns<float>(
      stream, m, n, [=] __device__(int j) -> float { return bias[j]; },
      [] __device__(float bias, float y) -> float { return y + bias; }, y, {},
      y);
}

cudaError_t Add(cudaStream_t stream, const float* a, const float* b,
                int64_t size, float* c) {
  return Map(
      stream, size, [] __device__(float a, float b) -> float { return a + b; },
      c, a, b);
}

cudaError_t Scale(cudaStream_t stream, float factor, const float* x,
                  int64_t size, float* y) {
  return Map(
      stream, size, [=] __device__(float x) -> float { return factor * x; }, y,
      x);
}

cudaError_t AddScaled(cudaStream_t stream, float factor, const float* x,
                      int64_t size, float* y) {
  return Map(
      stream, size,
      [=] __device__(float y, float x) -> float { return y + factor * x; }, y,
      y, x);
}

cudaError_t ToFloat16(cudaStream_t stream, const float* x, int64_t size,
                      uint16_t* to) {
  return Map(
      stream, size,
      [] __device__(float x) -> uint16_t { return halves::ToFloat16(x); }, to,
      x);
}

cudaError_t ToBfloat16(cudaStream_t stream, const float* x, int64_t size,
                       uint16_t* to) {
  return Map(
      stream, size,
      [] __device__(float x) -> uint16_t { return halves::ToBfloat16(x); }, to,
      x);
}

cudaError_t Relu(cudaStream_t stream, const float* x, int64_t size, float* y) {
  return Map(
      stream, size,
      [] __device__(float x) -> float { return x < 0.0f ? 0.0f : x; }, y, x);
}

cudaError_t ReluGradient(cudaStream_t stream, const Input& y, const float* dy,
                         int64_t size, float* dx) {
  const auto gradient = [] __device__(float y, float dy) -> float {
    return y > 0.0f ? dy : 0.0f;
  };
  return WithType(
      y, [&](const auto* y) { return Map(stream, size, gradient, dx, y, dy); });
}

cudaError_t Tanh(cudaStream_t stream, const float* x, int64_t size, float* y) {
  return Map(
      stream, size, [] __device__(float x) -> float { return tanhf(x); }, y, x);
}

cudaError_t TanhGradient(cudaStream_t stream, const float* y, const float* dy,
                         int64_t size, float* dx) {
  return Map(
      stream, size,
      [] __device__(float y, float dy) -> float { return dy * (1.0f - y * y); },
      dx, y, dy);
}

cudaError_t Sigmoid(cudaStream_t stream, const float* x, int64_t size,
                    float* y) {
  return Map(
      stream, size,
      [] __device__(float x) -> float {
        const float e = expf(-fabsf(x));
        return (x < 0.0f ? e : 1.0f) / (1.0f + e);
      },
      y, x);
}

cudaError_t SigmoidGradient(cudaStream_t stream, const float* y,
                            const float* dy, int64_t size, float* dx) {
  return Map(
      stream, size,
      [] __device__(float y, float dy) -> float { return dy * y * (1.0f - y); },
      dx, y, dy);
}

cudaError_t Dropout(cudaStream_t stream, const float* x,
                    const int64_t* positions, uint64_t key, float rate,
                    int64_t m, int64_t n, float* y) {
  // Both are computed as in CpuBackend.
  const uint32_t dropped_below =
      static_cast<uint32_t>(std::ceil(double{rate} * 0x1p32));
  const float scale = static_cast<float>(1.0 / (1.0 - double{rate}));
  const uint2 philox_key = {static_cast<uint32_t>(key),
                            static_cast<uint32_t>(key >> 32)};
  // One thread for the four elements that share a random number.
  constexpr int kWidth = 4;
  const int groups = static_cast<int>(CeilOfRatio(n, kWidth));
  const Divisor by_groups(groups);
  const bool in_vectors = n % kWidth == 0 && AreAligned(x, y);
  return ForEach(stream, m * groups, [=] __device__(int64_t i) {
    const auto place = by_groups.Divide(i);
    const uint64_t position = positions[place.quotient];
    const uint4 random = Philox4x32(
        {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
         static_cast<uint32_t>(place.remainder), 0},
        philox_key);
    const uint32_t words[kWidth] = {random.x, random.y, random.z, random.w};
    if (in_vectors) {
      Vector<float, kWidth> values = AsVectors<kWidth>(x)[i];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        values.of[k] = words[k] < dropped_below ? 0.0f : values.of[k] * scale;
      }
      AsVectors<kWidth>(y)[i] = values;
      return;
    }
    const int64_t col = int64_t{kWidth} * place.remainder;
    const int64_t first = place.quotient * n + col;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (col + k < n) {
        y[first + k] = words[k] < dropped_below ? 0.0f : x[first + k] * scale;
      }
    }
  });
}

}  // namespace kernels
}  // namespace holdfast
