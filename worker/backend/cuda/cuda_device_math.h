// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_CUDA_DEVICE_MATH_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_CUDA_DEVICE_MATH_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/cublas.h"
#include "worker/backend/cuda/cudnn.h"
#include "worker/backend/cuda/cudnn_convolution.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/stream/device_math.h"

namespace holdfast {

// The arithmetic of a GPU. cuBLAS does matrix products; cuDNN does
// convolutions; convolutions that cuDNN does not do are unfolded into matrix
// products; and our own kernels do the rest, depthwise convolutions included.
//
// The same operations give the same bits on the same kind of GPU and with the
// same version of cuBLAS, which has its own workspace of a fixed size, uses no
// atomics, and is used on one stream.
//
// Thread-compatible.
class CudaDeviceMath final : public DeviceMath {
 public:
  struct Options {
    // Whether matrix products round their factors to TensorFloat-32, with 10
    // bits of mantissa, on GPUs that can (from compute capability 8.0 on). They
    // are then several times as fast.
    bool tf32 = false;
    // The precision of the factors of products.
    Precision precision = Precision::kFloat32;
    // Like DeviceOptions::activations.
    bool activations = false;
    // The maximum bytes of columns that a convolution unfolds, or rounds, at a
    // time, unless a single image takes more. A lower limit is slower, because
    // a convolution becomes more products, with fewer rows each (ResNet-50 in
    // bfloat16 took 1.02 times as long with half of this limit). A higher limit
    // takes more memory.
    int64_t max_columns_bytes = int64_t{256} << 20;
    // cuDNN, for the convolutions in TF32 that it does faster
    // (CudnnConvolution). All others are unfolded; so are all convolutions if
    // `cudnn` is null or fails to start. Must outlive the CudaDeviceMath.
    const Cudnn* cudnn = nullptr;
  };

  // Creates the arithmetic for the GPU that the thread is bound to, whose
  // compute capability is `capability_major`.x. `stream` is that GPU's stream
  // kCompute, and must outlive the result.
  // Errors: those of LoadCublas, CudaStatus and CublasStatus.
  static absl::StatusOr<std::unique_ptr<CudaDeviceMath>> Create(
      cudaStream_t stream, int capability_major, const Options& options);
  ~CudaDeviceMath() override;

  // Whether cuDNN may do convolutions.
  bool has_cudnn() const { return cudnn_ != nullptr; }

  absl::Status Custom(CustomOperation operation) override;
  int64_t ProductWorkspace(ConstMatrix a, ConstMatrix b) override;
  absl::Status MatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                      bool add, Matrix c, float* workspace) override;
  int64_t RoundedCopy(int64_t size) override { return RoundedSize(size); }
  bool RoundsActivations() const override {
    return rounds() && options_.activations;
  }
  absl::Status AddBias(ConstMatrix bias, Matrix y) override;
  int64_t SumWorkspace(int64_t rows, int64_t cols) override;
  absl::Status SumRows(ConstMatrix x, Matrix sums, float* workspace) override;
  absl::Status SumSquares(ConstMatrix x, double* sum,
                          float* workspace) override;
  absl::Status Activate(Activation activation, ConstMatrix x,
                        Matrix y) override;
  absl::Status ActivationGradient(Activation activation, ConstMatrix y,
                                  ConstMatrix dy, Matrix dx) override;
  absl::Status Dropout(ConstMatrix x, const int64_t* positions, uint64_t key,
                       float rate, Matrix y) override;
  absl::Status Copy(ConstMatrix x, Matrix y) override;
  absl::Status Add(ConstMatrix a, ConstMatrix b, Matrix c) override;
  absl::Status Scale(float factor, ConstMatrix x, Matrix y) override;
  absl::Status AddScaled(float factor, ConstMatrix x, Matrix y) override;
  int64_t ConvolutionWorkspace(const Convolution& convolution,
                               int64_t images) override;
  absl::Status Convolve(const Convolution& convolution, ConstMatrix x,
                        ConstMatrix kernel, Matrix y,
                        float* workspace) override;
  absl::Status ConvolveKernelGradient(const Convolution& convolution,
                                      ConstMatrix x, ConstMatrix dy,
                                      Matrix kernel_gradient,
                                      float* workspace) override;
  absl::Status ConvolveInputGradient(const Convolution& convolution,
                                     ConstMatrix kernel, ConstMatrix dy,
                                     Matrix dx, float* workspace) override;
  absl::Status MaxPool(const Window& window, ConstMatrix x, Matrix y) override;
  int64_t MaxPoolGradientWorkspace(const Window& window,
                                   int64_t images) override;
  absl::Status MaxPoolGradient(const Window& window, ConstMatrix x,
                               ConstMatrix y, ConstMatrix dy, Matrix dx,
                               float* workspace) override;
  absl::Status AveragePool(const Window& window, ConstMatrix x,
                           Matrix y) override;
  absl::Status AveragePoolGradient(const Window& window, ConstMatrix dy,
                                   Matrix dx) override;
  absl::Status ColumnMoments(ConstMatrix x, Matrix mean, Matrix variance,
                             float* workspace) override;
  absl::Status NormalizeColumns(ConstMatrix x, const ColumnNorm& norm,
                                ConstMatrix addend, bool relu,
                                Matrix y) override;
  absl::Status NormalizeColumnsGradient(ConstMatrix x, const ColumnNorm& norm,
                                        bool relu, ConstMatrix dy,
                                        Matrix dscale, Matrix doffset,
                                        Matrix dx, float* workspace) override;
  absl::Status NormalizeRows(ConstMatrix x, float epsilon, ConstMatrix scale,
                             ConstMatrix offset, Matrix moments,
                             Matrix y) override;
  absl::Status NormalizeRowsGradient(ConstMatrix x, ConstMatrix scale,
                                     ConstMatrix moments, ConstMatrix dy,
                                     Matrix dscale, Matrix doffset, Matrix dx,
                                     float* workspace) override;
  absl::Status SumBags(const DeviceBags& bags, ConstMatrix rows,
                       Matrix y) override;
  absl::Status SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                               Matrix drows) override;
  absl::Status PairwiseBags(const DeviceBags& bags, ConstMatrix rows,
                            Matrix sums, Matrix y) override;
  absl::Status AddPairwiseBagsGradient(const DeviceBags& bags, ConstMatrix rows,
                                       ConstMatrix sums, ConstMatrix dy,
                                       Matrix drows) override;
  absl::Status DotPairs(ConstMatrix x, int64_t n, Matrix y) override;
  absl::Status DotPairsGradient(ConstMatrix x, int64_t n, ConstMatrix dy,
                                Matrix dx) override;
  absl::Status CopyColumns(ConstMatrix x, int64_t from, int64_t count, Matrix y,
                           int64_t to) override;
  absl::Status AddColumns(ConstMatrix x, int64_t from, int64_t count, Matrix y,
                          int64_t to) override;
  absl::Status Loss(const LossFunction& loss, ConstMatrix outputs,
                    const DeviceTargets& targets, Matrix gradient,
                    DeviceLossSums* sums, float* workspace) override;

 private:
  // `batch` products of the same shape. The matrices a, b and c of each product
  // begin a_step, b_step and c_step values after those of the product before.
  struct Gemm {
    Form form_a = Form::kPlain;
    Form form_b = Form::kPlain;
    // c is [m, n]; the inner dimension is k.
    int64_t m = 0;
    int64_t n = 0;
    int64_t k = 0;
    // The number of values from the start of one row to the start of the next.
    int64_t a_row = 0;
    int64_t b_row = 0;
    int64_t c_row = 0;
    int64_t batch = 1;
    int64_t a_step = 0;
    int64_t b_step = 0;
    int64_t c_step = 0;
    // Whether the product is added to c, rather than assigned to it.
    bool add = false;
    // Whether c has halves, to which the product is rounded, rather than
    // float32 values.
    bool rounds_c = false;
  };

  CudaDeviceMath(const Cublas* cublas, cudaStream_t stream,
                 const Options& options)
      : cublas_(cublas), stream_(stream), options_(options) {}

  // Whether the factors of products are rounded to 16 bits, called halves here.
  bool rounds() const { return options_.precision != Precision::kFloat32; }
  // FactorSize returns the workspace, in float32 values, that `size` values of
  // a factor take. RoundedSize is the same for values that are in memory as
  // float32 already: 0 unless factors are rounded.
  int64_t FactorSize(int64_t size) const;
  int64_t RoundedSize(int64_t size) const;
  // Returns the workspace for rounding x to a factor; 0 if x has a rounded
  // copy.
  int64_t ToRound(ConstMatrix x) const;
  // Returns the `size` values of x from `begin` on as a factor: the values
  // themselves, their rounded copy, or the result of rounding them into
  // `workspace`.
  absl::StatusOr<const void*> Factor(ConstMatrix x, int64_t begin, int64_t size,
                                     float* workspace);

  // Returns how many of `images` images a convolution unfolds, or rounds, at a
  // time; all of them if `ready`, which says that their pixels can be used as
  // factors as they are.
  int64_t ImagesAtATime(const Convolution& convolution, int64_t images,
                        bool ready) const;
  // Returns the workspace, in float32 values, that the columns of `images`
  // images take.
  int64_t ColumnsSize(const Convolution& convolution, int64_t images) const;
  // Returns the columns of `count` images of x, from `first` on, as a factor:
  // unfolded into `workspace` or, if a window sees one pixel, the pixels
  // themselves (Factor).
  absl::StatusOr<const void*> ColumnsOfImages(const Convolution& convolution,
                                              ConstMatrix x, int64_t first,
                                              int64_t count, float* workspace);
  // Returns the number of rows that the kernel has as a factor. With halves it
  // is the number of values in a row of the columns, which may exceed the
  // kernel's own rows; PadKernel fills the rows after these with 0.
  int64_t KernelRows(const Convolution& convolution) const;
  absl::Status PadKernel(const Convolution& convolution, float* factor);
  // Computes the convolution with a kernel that is a factor already.
  absl::Status ConvolveFactor(const Convolution& convolution, ConstMatrix x,
                              const void* kernel, Matrix y, float* workspace);

  // The same three operations and their workspace, for depthwise convolutions
  // (IsDepthwise), without unfolding the images.
  int64_t DepthwiseWorkspace(const Convolution& convolution,
                             int64_t images) const;
  absl::Status DepthwiseConvolve(const Convolution& convolution, ConstMatrix x,
                                 ConstMatrix kernel, Matrix y,
                                 float* workspace);
  absl::Status DepthwiseKernelGradient(const Convolution& convolution,
                                       ConstMatrix x, ConstMatrix dy,
                                       Matrix kernel_gradient,
                                       float* workspace);
  absl::Status DepthwiseInputGradient(const Convolution& convolution,
                                      ConstMatrix kernel, ConstMatrix dy,
                                      Matrix dx, float* workspace);

  // Returns the rounded copy if products round factors and there is one,
  // otherwise the values.
  kernels::FactorValues FactorValuesOf(ConstMatrix matrix) const;
  kernels::RoundedCopy RoundedOf(Matrix matrix) const {
    const bool wanted = matrix.data != nullptr && matrix.rounded != nullptr;
    return {options_.precision,
            wanted ? static_cast<uint16_t*>(matrix.rounded) : nullptr};
  }

  // The precision of a matrix's values, and the values from `begin` on: those
  // of its rounded copy, if it has nothing else.
  Precision PrecisionOf(ConstMatrix matrix) const {
    return matrix.rounded_alone ? options_.precision : Precision::kFloat32;
  }
  static void* ValuesAt(Matrix matrix, int64_t begin);
  kernels::Input InputOf(ConstMatrix matrix) const {
    return {matrix.rounded_alone ? matrix.rounded : matrix.data,
            PrecisionOf(matrix)};
  }

  absl::Status Multiply(const Gemm& gemm, const void* a, const void* b,
                        void* c);
  absl::Status Fill0(Matrix matrix);

  const Cublas* const cublas_;
  const cudaStream_t stream_;
  const Options options_;
  cublasHandle_t handle_ = nullptr;
  void* cublas_workspace_ = nullptr;
  // Null if convolutions are unfolded.
  std::unique_ptr<CudnnConvolution> cudnn_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDA_DEVICE_MATH_H_
