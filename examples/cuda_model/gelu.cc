// SPDX-License-Identifier: Apache-2.0
#include "examples/cuda_model/gelu.h"

#include <cmath>

namespace holdfast_examples {
namespace {

constexpr float kRootHalf = 0.70710678f;
constexpr float kRootTwoPiInverse = 0.39894228f;

float Probability(float x) { return 0.5f * (1.0f + std::erf(x * kRootHalf)); }

}  // namespace

void Gelu(const float* x, int64_t size, float* y) {
  for (int64_t i = 0; i < size; ++i) y[i] = x[i] * Probability(x[i]);
}

void GeluGradient(const float* x, const float* dy, int64_t size, float* dx) {
  for (int64_t i = 0; i < size; ++i) {
    const float density = kRootTwoPiInverse * std::exp(-0.5f * x[i] * x[i]);
    dx[i] = dy[i] * (Probability(x[i]) + x[i] * density);
  }
}

}  // namespace holdfast_examples
