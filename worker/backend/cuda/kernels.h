// Our own kernels: everything but matrix products. Each function enqueues one
// operation of DeviceMath (worker/backend/stream/device_math.h) on `stream` and
// returns what went wrong in that. Sizes are those of the matrices in
// backend.h's formulas; pointers are to the GPU's memory; nothing is enqueued
// for a matrix without values.
//
// No kernel uses atomics, and what a sum is made of, and in which order,
// follows from the shapes alone: the same values give the same bits, on every
// kind of GPU, but for the functions exp, log and tanh, of which another
// version of CUDA may round otherwise.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_KERNELS_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/backend/precision.h"

namespace holdfast {
namespace kernels {

cudaError_t AddBias(cudaStream_t stream, const float* bias, int64_t m,
                    int64_t n, float* y);
cudaError_t Add(cudaStream_t stream, const float* a, const float* b,
                int64_t size, float* c);
cudaError_t Scale(cudaStream_t stream, float factor, const float* x,
                  int64_t size, float* y);
cudaError_t AddScaled(cudaStream_t stream, float factor, const float* x,
                      int64_t size, float* y);

// What x is rounded to, in two bytes each (halves.h).
cudaError_t ToFloat16(cudaStream_t stream, const float* x, int64_t size,
                      uint16_t* to);
cudaError_t ToBfloat16(cudaStream_t stream, const float* x, int64_t size,
                       uint16_t* to);

cudaError_t Relu(cudaStream_t stream, const float* x, int64_t size, float* y);
cudaError_t ReluGradient(cudaStream_t stream, const float* y, const float* dy,
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

// Bytes that the sums below, and the losses, want as `workspace` for a matrix
// of m x n; at most 32 for each of m and n, and 2^21 more.
int64_t SumWorkspaceBytes(int64_t m, int64_t n);

cudaError_t SumRows(cudaStream_t stream, const float* x, int64_t m, int64_t n,
                    float* sums, void* workspace);
cudaError_t ColumnMoments(cudaStream_t stream, const float* x, int64_t m,
                          int64_t n, float* mean, float* variance,
                          void* workspace);

// Where else what a kernel makes is to go, rounded to `precision`, which is one
// of 16 bits. Null: nowhere.
struct RoundedCopy {
  Precision precision = Precision::kFloat32;
  uint16_t* values = nullptr;
};

// holdfast::ColumnNorm.
struct ColumnNorm {
  const float* mean;
  const float* variance;
  float epsilon;
  const float* scale;
  const float* offset;
};

// addend may be null; y too, where there is a rounded copy.
cudaError_t NormalizeColumns(cudaStream_t stream, const float* x,
                             const ColumnNorm& norm, const float* addend,
                             bool relu, int64_t m, int64_t n, float* y,
                             const RoundedCopy& rounded_y);
// dx may be null. Then only its rounded copy is made, if there is one.
cudaError_t NormalizeColumnsGradient(cudaStream_t stream, const float* x,
                                     const ColumnNorm& norm, bool relu,
                                     const float* dy, int64_t m, int64_t n,
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

// holdfast::DeviceBags.
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

// Rows have d values. All sum in float32 and in the order of the CPU, whose
// bits they get, but for y of PairwiseBags, which is summed in double.
cudaError_t SumBags(cudaStream_t stream, const Bags& bags, const float* rows,
                    int64_t d, float* y);
cudaError_t SumBagsGradient(cudaStream_t stream, const Bags& bags,
                            const float* dy, int64_t d, float* drows);
cudaError_t PairwiseBags(cudaStream_t stream, const Bags& bags,
                         const float* rows, int64_t d, float* sums, float* y);
cudaError_t AddPairwiseBagsGradient(cudaStream_t stream, const Bags& bags,
                                    const float* rows, const float* sums,
                                    const float* dy, int64_t d, float* drows);

// Of m rows of n vectors of d values.
cudaError_t DotPairs(cudaStream_t stream, const float* x, int64_t m, int64_t n,
                     int64_t d, float* y);
cudaError_t DotPairsGradient(cudaStream_t stream, const float* x,
                             const float* dy, int64_t m, int64_t n, int64_t d,
                             float* dx);

// `count` columns of m rows; rows of x and y begin so many values apart.
cudaError_t CopyColumns(cudaStream_t stream, const float* x, int64_t x_row,
                        int64_t m, int64_t count, float* y, int64_t y_row);
cudaError_t AddColumns(cudaStream_t stream, const float* x, int64_t x_row,
                       int64_t m, int64_t count, float* y, int64_t y_row);

// holdfast::DeviceTargets.
struct LossTargets {
  const int32_t* labels;
  const float* values;
  const float* weights;
};

// sums[0] is the loss, sums[1] how many are predicted right, sums[2] and
// sums[3] the absolute and the squared error, where there are such. dz may be
// null.
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

// holdfast::Window, in numbers that the GPU divides fast.
struct WindowShape {
  int height, width, channels;
  int window_height, window_width;
  int stride_height, stride_width;
  int pad_top, pad_left;
  int output_height, output_width;
};

// What each place of the window sees, a row per place, rounded to `precision`:
//   columns[(i, p, q), (g, v, u, c)], with c over the channels of group g.
// Rows have row_size values, of which those behind the columns are 0; `columns`
// is aligned to 16 bytes. They are float32, or halves in two bytes each. An
// image, and an eighth of the columns, have less than 2^31 values; where rows
// are no multiple of 8, so do all columns.
// The images are float32, or, if they are rounded, already of that precision.
cudaError_t ImagesToColumns(cudaStream_t stream, const void* x, bool is_rounded,
                            const WindowShape& window, int groups,
                            int64_t images, int64_t row_size,
                            Precision precision, void* columns);
// The transposed, of columns in float32 without anything behind them:
// dx = the sum of the columns that saw it.
cudaError_t ColumnsToImages(cudaStream_t stream, const float* columns,
                            const WindowShape& window, int groups,
                            int64_t images, float* dx);
// A kernel [(v, u, c), f] with its window turned by half a circle and its
// channels and filters exchanged, [(v, u, f), c], rounded to `precision`.
cudaError_t FlipKernel(cudaStream_t stream, const float* kernel,
                       const WindowShape& window, int filters,
                       Precision precision, void* flipped);

cudaError_t MaxPool(cudaStream_t stream, const float* x,
                    const WindowShape& window, int64_t images, float* y);
// Bytes that MaxPoolGradient wants as `workspace`.
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

// y[j, i] = x[i, j], with x of rows x cols. They must not overlap.
cudaError_t Transpose(cudaStream_t stream, const float* x, int64_t rows,
                      int64_t cols, float* y);

// Images of [height, width, channels], and those of another size that are cut
// out of them, or of them and zeros around them.
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
