// SPDX-License-Identifier: Apache-2.0

// Our own kernels: everything but matrix products. Each function enqueues one
// operation of DeviceMath (worker/backend/stream/device_math.h) on `stream`,
// and returns an error if it could not be enqueued. Sizes have the names that
// they have in backend.h's formulas. Pointers are to the GPU's memory. Nothing
// is enqueued for a result without values.
//
// No kernel uses atomics, and the terms of a sum and their order follow from
// the shapes alone: the same values give the same bits on every kind of GPU,
// except for the functions exp, log and tanh, which may round differently in
// another version of CUDA.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_KERNELS_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/backend/precision.h"

namespace holdfast {
namespace kernels {

// A matrix that a kernel reads, of float32 or of 16-bit values.
struct Input {
  const void* values = nullptr;
  Precision precision = Precision::kFloat32;
};

cudaError_t AddBias(cudaStream_t stream, const float* bias, int64_t m,
                    int64_t n, float* y);
cudaError_t Add(cudaStream_t stream, const float* a, const float* b,
                int64_t size, float* c);
cudaError_t Scale(cudaStream_t stream, float factor, const float* x,
                  int64_t size, float* y);
cudaError_t AddScaled(cudaStream_t stream, float factor, const float* x,
                      int64_t size, float* y);

// These round x to two bytes for each value (halves.h).
cudaError_t ToFloat16(cudaStream_t stream, const float* x, int64_t size,
                      uint16_t* to);
cudaError_t ToBfloat16(cudaStream_t stream, const float* x, int64_t size,
                       uint16_t* to);

cudaError_t Relu(cudaStream_t stream, const float* x, int64_t size, float* y);
cudaError_t ReluGradient(cudaStream_t stream, const Input& y, const float* dy,
                         int64_t size, float* dx);
cudaError_t Tanh(cudaStream_t stream, const float* x, int64_t size, float* y);
cudaError_t TanhGradient(cudaStream_t stream, const float* y, const float* dy,
                         int64_t size, float* dx);
cudaError_t Sigmoid(cudaStream_t stream, const float* x, int64_t size,
                    float* y);
cudaError_t SigmoidGradient(cudaStream_t stream, const float* y,
                            const float* dy, int64_t size, float* dx);
cudaError_t Dropout(cudaStream_t stream, const float* x,
                    const int64_t* positions, uint64_t key, float rate,
                    int64_t m, int64_t n, float* y);

// Returns the bytes that the sums below, and the losses, need as `workspace`
// for a matrix of m x n: at most 32 (m + n) + 2^21.
int64_t SumWorkspaceBytes(int64_t m, int64_t n);

cudaError_t SumRows(cudaStream_t stream, const float* x, int64_t m, int64_t n,
                    float* sums, void* workspace);
// `sum` is aligned to 8 bytes.
cudaError_t SumSquares(cudaStream_t stream, const float* x, int64_t size,
                       double* sum, void* workspace);

cudaError_t ColumnMoments(cudaStream_t stream, const Input& x, int64_t m,
                          int64_t n, float* mean, float* variance,
                          void* workspace);

// Where a kernel also writes its result, rounded to `precision`, which must
// have 16 bits. If `values` is null, the kernel writes no rounded copy.
struct RoundedCopy {
  Precision precision = Precision::kFloat32;
  uint16_t* values = nullptr;
};

// The same as holdfast::ColumnNorm.
struct ColumnNorm {
  const float* mean;
  const float* variance;
  float epsilon;
  const float* scale;
  const float* offset;
};

// The 16-bit values that one of the two functions below reads and writes must
// have the same precision.
//
// `addend` may have no values. y may be null, if there is a rounded copy.
cudaError_t NormalizeColumns(cudaStream_t stream, const Input& x,
                             const ColumnNorm& norm, const Input& addend,
                             bool relu, int64_t m, int64_t n, float* y,
                             const RoundedCopy& rounded_y);
// dx may be null: then only its rounded copy is written, if there is one.
cudaError_t NormalizeColumnsGradient(cudaStream_t stream, const Input& x,
                                     const ColumnNorm& norm, bool relu,
                                     const Input& dy, int64_t m, int64_t n,
                                     float* dscale, float* doffset, float* dx,
                                     const RoundedCopy& rounded_dx,
                                     void* workspace);
cudaError_t NormalizeRows(cudaStream_t stream, const float* x, float epsilon,
                          const float* scale, const float* offset, int64_t m,
                          int64_t n, float* moments, float* y);
// dx may be null.
cudaError_t NormalizeRowsGradient(cudaStream_t stream, const float* x,
                                  const float* scale, const float* moments,
                                  const float* dy, int64_t m, int64_t n,
                                  float* dscale, float* doffset, float* dx,
                                  void* workspace);

// The same as holdfast::DeviceBags.
struct Bags {
  const uint32_t* rows;
  const uint32_t* bags;
  const float* weights;
  const uint32_t* offsets;
  const uint32_t* uses;
  const uint32_t* begins;
  int64_t num_merged_bags;
  int64_t num_rows;
  int64_t merged;
};

// The operations on bags, whose rows have d values. They sum in float32, in the
// same order as the CPU, and give the same bits as the CPU, except for y of
// PairwiseBags, which is summed in double.
cudaError_t SumBags(cudaStream_t stream, const Bags& bags, const float* rows,
                    int64_t d, float* y);
cudaError_t SumBagsGradient(cudaStream_t stream, const Bags& bags,
                            const float* dy, int64_t d, float* drows);
cudaError_t PairwiseBags(cudaStream_t stream, const Bags& bags,
                         const float* rows, int64_t d, float* sums, float* y);
cudaError_t AddPairwiseBagsGradient(cudaStream_t stream, const Bags& bags,
                                    const float* rows, const float* sums,
                                    const float* dy, int64_t d, float* drows);

// x has m rows of n vectors of d values.
cudaError_t DotPairs(cudaStream_t stream, const float* x, int64_t m, int64_t n,
                     int64_t d, float* y);
cudaError_t DotPairsGradient(cudaStream_t stream, const float* x,
                             const float* dy, int64_t m, int64_t n, int64_t d,
                             float* dx);

// These copy or add `count` columns of m rows, from x on and to y on. The rows
// of x begin x_row values apart, and the rows of y begin y_row values apart.
cudaError_t CopyColumns(cudaStream_t stream, const float* x, int64_t x_row,
                        int64_t m, int64_t count, float* y, int64_t y_row);
cudaError_t AddColumns(cudaStream_t stream, const float* x, int64_t x_row,
                       int64_t m, int64_t count, float* y, int64_t y_row);

// The same as holdfast::DeviceTargets.
struct LossTargets {
  const int32_t* labels;
  const float* values;
  const float* weights;
};

// The losses. sums[0] is the loss, sums[1] the number of correct predictions,
// and sums[2] and sums[3] the absolute and the squared error, if the loss has
// them. dz may be null.
cudaError_t SoftmaxCrossEntropy(cudaStream_t stream, const float* z,
                                const LossTargets& targets, int64_t m,
                                int64_t n, float* dz, double* sums,
                                void* workspace);
cudaError_t SigmoidCrossEntropy(cudaStream_t stream, const float* z,
                                const LossTargets& targets, int64_t m,
                                int64_t n, float* dz, double* sums,
                                void* workspace);
cudaError_t MeanSquaredError(cudaStream_t stream, const float* z,
                             const LossTargets& targets, int64_t m, int64_t n,
                             float* dz, double* sums, void* workspace);
cudaError_t MeanAbsoluteError(cudaStream_t stream, const float* z,
                              const LossTargets& targets, int64_t m, int64_t n,
                              float* dz, double* sums, void* workspace);
cudaError_t Huber(cudaStream_t stream, const float* z,
                  const LossTargets& targets, float delta, int64_t m, int64_t n,
                  float* dz, double* sums, void* workspace);

// The same as holdfast::Window, in 32-bit numbers, which the GPU divides fast.
struct WindowShape {
  int height, width, channels;
  int window_height, window_width;
  int stride_height, stride_width;
  int pad_top, pad_left;
  int output_height, output_width;
};

// Unfolds images: writes the pixels that the window sees at each position to a
// row of `columns`, rounded to `precision`:
//   columns[(i, p, q), (g, v, u, c)], with c over the channels of group g.
// Each row has row_size values; those after the pixels are 0. `columns` must be
// aligned to 16 bytes. Its values are float32, or halves of two bytes each. An
// image, and an eighth of the columns, must have less than 2^31 values; if
// row_size is not a multiple of 8, all columns together must have less. The
// images are float32 or, if is_rounded, already in `precision`.
cudaError_t ImagesToColumns(cudaStream_t stream, const void* x, bool is_rounded,
                            const WindowShape& window, int groups,
                            int64_t images, int64_t row_size,
                            Precision precision, void* columns);
// The transpose of ImagesToColumns, for columns in float32 whose rows have no
// values after the pixels. Each dx is the sum of the values of `columns` at
// which its pixel was seen, rounded to `precision`: float32, or a half of two
// bytes.
cudaError_t ColumnsToImages(cudaStream_t stream, const float* columns,
                            const WindowShape& window, int groups,
                            int64_t images, Precision precision, void* dx);
// Writes the kernel [(v, u, c), f] to `flipped` as [(v, u, f), c], with its
// window rotated by 180 degrees, rounded to `precision`.
cudaError_t FlipKernel(cudaStream_t stream, const float* kernel,
                       const WindowShape& window, int filters,
                       Precision precision, void* flipped);

// A matrix whose values are factors: in float32, which a kernel rounds as it
// reads them, or, if is_rounded, already rounded to halves.
struct FactorValues {
  const void* values;
  bool is_rounded;
};

// Depthwise convolutions: of images with `multiplier` filters for each channel,
// where filter f sees channel f / multiplier. Factors are rounded to
// `precision`; the kernel has been rounded already. y and dx are summed in
// float32, in the CPU's order, so that they have the CPU's bits; y or dx may be
// null if there is a rounded copy. The gradient of the kernel is summed in
// double, or in float32 over a few positions at a time.
cudaError_t DepthwiseConvolve(cudaStream_t stream, const FactorValues& x,
                              const void* kernel, const WindowShape& window,
                              int multiplier, int64_t images,
                              Precision precision, float* y,
                              const RoundedCopy& rounded_y);
cudaError_t DepthwiseInputGradient(cudaStream_t stream, const void* kernel,
                                   const FactorValues& dy,
                                   const WindowShape& window, int multiplier,
                                   int64_t images, Precision precision,
                                   float* dx, const RoundedCopy& rounded_dx);
// Returns the bytes that DepthwiseKernelGradient needs as `workspace`.
int64_t DepthwiseWorkspaceBytes(const WindowShape& window, int multiplier,
                                int64_t images);
cudaError_t DepthwiseKernelGradient(cudaStream_t stream, const FactorValues& x,
                                    const FactorValues& dy,
                                    const WindowShape& window, int multiplier,
                                    int64_t images, Precision precision,
                                    float* kernel_gradient, void* workspace);

cudaError_t MaxPool(cudaStream_t stream, const float* x,
                    const WindowShape& window, int64_t images, float* y);
// Returns the bytes that MaxPoolGradient needs as `workspace`.
int64_t MaxPoolGradientWorkspaceBytes(const WindowShape& window,
                                      int64_t images);
cudaError_t MaxPoolGradient(cudaStream_t stream, const float* x,
                            const float* dy, const WindowShape& window,
                            int64_t images, float* dx, void* workspace);
cudaError_t AveragePool(cudaStream_t stream, const float* x,
                        const WindowShape& window, int64_t images, float* y);
cudaError_t AveragePoolGradient(cudaStream_t stream, const float* dy,
                                const WindowShape& window, int64_t images,
                                float* dx);

// y[j, i] = x[i, j], with x of rows x cols. x and y must not overlap.
cudaError_t Transpose(cudaStream_t stream, const float* x, int64_t rows,
                      int64_t cols, float* y);

// Describes how images of [to_height, to_width, channels] are cut out of images
// of [height, width, channels], beginning at row `down` and column `right`,
// which may be negative. Outside an image there are zeros.
struct ImageShift {
  int channels;
  int height, width;
  int down, right;
  int to_height, to_width;
};

// y[i, (p, q, c)] = x[i, (p + down, q + right, c)], 0 for x beyond the image.
cudaError_t ShiftImages(cudaStream_t stream, const float* x,
                        const ImageShift& shift, int64_t images, float* y);

}  // namespace kernels
}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_KERNELS_H_
