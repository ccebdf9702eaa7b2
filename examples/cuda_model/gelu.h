// SPDX-License-Identifier: Apache-2.0

// The Gaussian error linear unit (Hendrycks and Gimpel, "Gaussian Error Linear
// Units", 2016), which the backend does not have:
//
//   y[i]  = x[i] P(x[i])
//   dx[i] = dy[i] (P(x[i]) + x[i] p(x[i]))
//   P(x)  = (1 + erf(x / sqrt(2))) / 2
//   p(x)  = exp(-x^2 / 2) / sqrt(2 pi)
//
// Gelu and GeluGradient compute on the host. The Launch functions enqueue
// kernels (gelu.cu) on `cuda_stream`, a cudaStream_t, and return null, or
// CUDA's description of an error while enqueuing.
#ifndef HOLDFAST_EXAMPLES_CUDA_MODEL_GELU_H_
#define HOLDFAST_EXAMPLES_CUDA_MODEL_GELU_H_

#include <cstdint>

namespace holdfast_examples {

void Gelu(const float* x, int64_t size, float* y);
void GeluGradient(const float* x, const float* dy, int64_t size, float* dx);

const char* LaunchGelu(void* cuda_stream, const float* x, int64_t size,
                       float* y);
const char* LaunchGeluGradient(void* cuda_stream, const float* x,
                               const float* dy, int64_t size, float* dx);

}  // namespace holdfast_examples

#endif  // HOLDFAST_EXAMPLES_CUDA_MODEL_GELU_H_
