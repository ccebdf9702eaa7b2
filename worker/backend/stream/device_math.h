// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_MATH_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_MATH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/backend/backend.h"

namespace holdfast {

enum class Activation { kRelu, kTanh, kSigmoid };

// The same as Targets, but in the device's memory. A pointer is null if the
// span of Targets is empty.
struct DeviceTargets {
  const int32_t* labels = nullptr;
  const float* values = nullptr;
  const float* weights = nullptr;
};

// The results of a loss in the device's memory, as in LossSums. Results that
// LossSums would lack are undefined.
struct DeviceLossSums {
  double loss;
  double correct;
  double absolute_error;
  double squared_error;
};

// The arithmetic of a device: the operations of Backend, with the same formulas
// and rules. Each is enqueued on the stream kCompute. All matrices, labels and
// positions are in the device's memory.
//
// An operation may need a workspace. The matching *Workspace() returns a size,
// in float32 values, that is enough for any operation of its kind; `workspace`
// must have room for that many values, and must be aligned to 256 bytes.
//
// Errors: INTERNAL when an operation could not be enqueued.
class DeviceMath {
 public:
  virtual ~DeviceMath() = default;

  virtual absl::Status Custom(CustomOperation operation) = 0;
  // Returns the workspace for a product of factors with the shapes of a and b.
  virtual int64_t ProductWorkspace(ConstMatrix a, ConstMatrix b) = 0;
  virtual absl::Status MatMul(Form form_a, ConstMatrix a, Form form_b,
                              ConstMatrix b, bool add, Matrix c,
                              float* workspace) = 0;
  // Returns the size of a rounded copy (ConstMatrix::rounded) of `size` values,
  // in float32 values; 0 if the device does not make rounded copies.
  virtual int64_t RoundedCopy(int64_t size) = 0;
  // As in Backend.
  virtual bool RoundsActivations() const = 0;
  virtual absl::Status AddBias(ConstMatrix bias, Matrix y) = 0;

  // Returns the workspace for any operation that sums over the rows or columns
  // of a matrix of this shape, or over both, including the losses.
  virtual int64_t SumWorkspace(int64_t rows, int64_t cols) = 0;
  virtual absl::Status SumRows(ConstMatrix x, Matrix sums,
                               float* workspace) = 0;
  // `sum` is in the device's memory.
  virtual absl::Status SumSquares(ConstMatrix x, double* sum,
                                  float* workspace) = 0;

  virtual absl::Status Activate(Activation activation, ConstMatrix x,
                                Matrix y) = 0;
  virtual absl::Status ActivationGradient(Activation activation, ConstMatrix y,
                                          ConstMatrix dy, Matrix dx) = 0;
  virtual absl::Status Dropout(ConstMatrix x, const int64_t* positions,
                               uint64_t key, float rate, Matrix y) = 0;
  virtual absl::Status Copy(ConstMatrix x, Matrix y) = 0;
  virtual absl::Status Add(ConstMatrix a, ConstMatrix b, Matrix c) = 0;
  virtual absl::Status Scale(float factor, ConstMatrix x, Matrix y) = 0;
  virtual absl::Status AddScaled(float factor, ConstMatrix x, Matrix y) = 0;

  // Returns the workspace for a convolution over `images` images. It does not
  // grow with `images` beyond a bound, unless a single image is very large.
  virtual int64_t ConvolutionWorkspace(const Convolution& convolution,
                                       int64_t images) = 0;
  virtual absl::Status Convolve(const Convolution& convolution, ConstMatrix x,
                                ConstMatrix kernel, Matrix y,
                                float* workspace) = 0;
  virtual absl::Status ConvolveKernelGradient(const Convolution& convolution,
                                              ConstMatrix x, ConstMatrix dy,
                                              Matrix kernel_gradient,
                                              float* workspace) = 0;
  virtual absl::Status ConvolveInputGradient(const Convolution& convolution,
                                             ConstMatrix kernel, ConstMatrix dy,
                                             Matrix dx, float* workspace) = 0;

  virtual absl::Status MaxPool(const Window& window, ConstMatrix x,
                               Matrix y) = 0;
  // Returns the workspace for a MaxPoolGradient over `images` images.
  virtual int64_t MaxPoolGradientWorkspace(const Window& window,
                                           int64_t images) = 0;
  virtual absl::Status MaxPoolGradient(const Window& window, ConstMatrix x,
                                       ConstMatrix y, ConstMatrix dy, Matrix dx,
                                       float* workspace) = 0;
  virtual absl::Status AveragePool(const Window& window, ConstMatrix x,
                                   Matrix y) = 0;
  virtual absl::Status AveragePoolGradient(const Window& window, ConstMatrix dy,
                                           Matrix dx) = 0;

  virtual absl::Status ColumnMoments(ConstMatrix x, Matrix mean,
                                     Matrix variance, float* workspace) = 0;
  virtual absl::Status NormalizeColumns(ConstMatrix x, const ColumnNorm& norm,
                                        ConstMatrix addend, bool relu,
                                        Matrix y) = 0;
  virtual absl::Status NormalizeColumnsGradient(
      ConstMatrix x, const ColumnNorm& norm, bool relu, ConstMatrix dy,
      Matrix dscale, Matrix doffset, Matrix dx, float* workspace) = 0;
  virtual absl::Status NormalizeRows(ConstMatrix x, float epsilon,
                                     ConstMatrix scale, ConstMatrix offset,
                                     Matrix moments, Matrix y) = 0;
  virtual absl::Status NormalizeRowsGradient(ConstMatrix x, ConstMatrix scale,
                                             ConstMatrix moments,
                                             ConstMatrix dy, Matrix dscale,
                                             Matrix doffset, Matrix dx,
                                             float* workspace) = 0;

  // The arrays that `bags` points to are also in the device's memory.
  virtual absl::Status SumBags(const DeviceBags& bags, ConstMatrix rows,
                               Matrix y) = 0;
  virtual absl::Status SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                                       Matrix drows) = 0;
  virtual absl::Status PairwiseBags(const DeviceBags& bags, ConstMatrix rows,
                                    Matrix sums, Matrix y) = 0;
  virtual absl::Status AddPairwiseBagsGradient(const DeviceBags& bags,
                                               ConstMatrix rows,
                                               ConstMatrix sums, ConstMatrix dy,
                                               Matrix drows) = 0;
  virtual absl::Status DotPairs(ConstMatrix x, int64_t n, Matrix y) = 0;
  virtual absl::Status DotPairsGradient(ConstMatrix x, int64_t n,
                                        ConstMatrix dy, Matrix dx) = 0;
  virtual absl::Status CopyColumns(ConstMatrix x, int64_t from, int64_t count,
                                   Matrix y, int64_t to) = 0;
  virtual absl::Status AddColumns(ConstMatrix x, int64_t from, int64_t count,
                                  Matrix y, int64_t to) = 0;

  // Computes no gradient if `gradient` has no data.
  virtual absl::Status Loss(const LossFunction& loss, ConstMatrix outputs,
                            const DeviceTargets& targets, Matrix gradient,
                            DeviceLossSums* sums, float* workspace) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_MATH_H_
