// SPDX-License-Identifier: Apache-2.0

// Replaces gelu.cu if there is no nvcc. Such a worker uses no GPU, so these
// functions are never called.
#include "examples/cuda_model/gelu.h"

namespace holdfast_examples {
namespace {

constexpr char kNoCuda[] = "this program was built without CUDA";

}  // namespace

const char* LaunchGelu(void*, const float*, int64_t, float*) { return kNoCuda; }

const char* LaunchGeluGradient(void*, const float*, const float*, int64_t,
                               float*) {
  return kNoCuda;
}

}  // namespace holdfast_examples
