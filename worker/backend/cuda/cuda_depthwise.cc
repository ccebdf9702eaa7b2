// SPDX-License-Identifier: Apache-2.0

// CudaDeviceMath's depthwise convolutions.
#include <algorithm>

#include "common/base/status_macros.h"
#include "worker/backend/cuda/cuda_device_math.h"
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/kernel_arguments.h"
#include "worker/backend/cuda/kernels.h"

namespace holdfast {
namespace {

int Multiplier(const Convolution& convolution) {
  return static_cast<int>(convolution.filters / convolution.window.channels);
}

}  // namespace

kernels::FactorValues CudaDeviceMath::FactorValuesOf(ConstMatrix matrix) const {
  const bool is_rounded = rounds() && matrix.rounded != nullptr;
  return {is_rounded ? matrix.rounded : matrix.data, is_rounded};
}

int64_t CudaDeviceMath::DepthwiseWorkspace(const Convolution& convolution,
                                           int64_t images) const {
  const int64_t kernel =
      RoundedSize(convolution.kernel_rows() * convolution.filters);
  const int64_t sums =
      kernels::DepthwiseWorkspaceBytes(Shape(convolution.window),
                                       Multiplier(convolution), images) /
      int64_t{sizeof(float)};
  return std::max(kernel, sums);
}

absl::Status CudaDeviceMath::DepthwiseConvolve(const Convolution& convolution,
                                               ConstMatrix x,
                                               ConstMatrix kernel, Matrix y,
                                               float* workspace) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto factor,
                            Factor(kernel, 0, kernel.size(), workspace));
  return CudaStatus(kernels::DepthwiseConvolve(
                        stream_, FactorValuesOf(x), factor,
                        Shape(convolution.window), Multiplier(convolution),
                        x.rows, options_.precision, ValuesOf(y), RoundedOf(y)),
                    "a depthwise convolution");
}

absl::Status CudaDeviceMath::DepthwiseKernelGradient(
    const Convolution& convolution, ConstMatrix x, ConstMatrix dy,
    Matrix kernel_gradient, float* workspace) {
  return CudaStatus(
      kernels::DepthwiseKernelGradient(
          stream_, FactorValuesOf(x), FactorValuesOf(dy),
          Shape(convolution.window), Multiplier(convolution), x.rows,
          options_.precision, kernel_gradient.data, workspace),
      "the kernel's gradient of a depthwise convolution");
}

absl::Status CudaDeviceMath::DepthwiseInputGradient(
    const Convolution& convolution, ConstMatrix kernel, ConstMatrix dy,
    Matrix dx, float* workspace) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto factor,
                            Factor(kernel, 0, kernel.size(), workspace));
  return CudaStatus(
      kernels::DepthwiseInputGradient(
          stream_, factor, FactorValuesOf(dy), Shape(convolution.window),
          Multiplier(convolution), dx.rows, options_.precision, ValuesOf(dx),
          RoundedOf(dx)),
      "the images' gradient of a depthwise convolution");
}

}  // namespace holdfast
