// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CPU_CPU_BACKEND_H_
#define HOLDFAST_WORKER_BACKEND_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/simd.h"
#include "common/base/thread_pool.h"
#include "worker/backend/backend.h"

namespace holdfast {

// The backend on the CPU: OpenBLAS computes matrix products, to which most
// convolutions are reduced; depthwise convolutions (IsDepthwise) and all the
// rest are loops. The backend's memory is the host's: nothing is copied, and
// every operation has ended when its call returns.
//
// Thread-compatible. OpenBLAS has one number of threads for the whole process:
// that of the backend which was created last.
class CpuBackend final : public Backend {
 public:
  struct Options {
    // The number of threads that compute one matrix product or depthwise
    // convolution. More threads are faster for large ones, as long as there are
    // idle cores. Results are reproducible only with the same number.
    int threads = 1;
    // The precision of the factors of products. Precisions other than float32
    // are emulated, and slower than float32.
    Precision precision = Precision::kFloat32;
    // Like DeviceOptions::activations. Rounded values are kept as float32.
    bool activations = false;
    // The vector instructions of the loops over bags, pairs and depthwise
    // convolutions; one of SupportedSimd(). All give the same bits.
    Simd simd = BestSimd();
  };

  // Errors: INVALID_ARGUMENT when `threads` is below 1 or above what OpenBLAS
  // was built for.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(Options options);

  Description Describe() const override;

  absl::Status Reserve(int64_t size, DeviceBuffer* buffer) override;
  bool RoundsActivations() const override {
    return options_.activations && options_.precision != Precision::kFloat32;
  }
  absl::StatusOr<Matrix> ReserveFor(absl::Span<float> host, int64_t rows,
                                    int64_t cols,
                                    DeviceBuffer* buffer) override;
  absl::StatusOr<ConstMatrix> Upload(absl::Span<const float> host, int64_t rows,
                                     int64_t cols,
                                     DeviceBuffer* staging) override;
  absl::StatusOr<HostBuffer> AllocateHost(int64_t size) override;
  absl::Status AwaitUploads() override;
  absl::StatusOr<Download> StartDownload(ConstMatrix matrix) override;
  absl::StatusOr<bool> HasArrived(const Download& download) override;
  absl::Status Await(const Download& download) override;
  absl::Status Share(ConstMatrix matrix, SharedMatrix* shared) override;
  absl::StatusOr<ConstMatrix> Fetch(const SharedMatrix& shared,
                                    DeviceBuffer* staging) override;

  absl::Status Custom(absl::Span<const ConstMatrix> touched,
                      CustomOperation operation) override;
  void MatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
              Matrix c) override;
  void AddMatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                 Matrix c) override;
  void AddBias(ConstMatrix bias, Matrix y) override;
  void SumRows(ConstMatrix x, Matrix sums) override;
  // Adds in the order of SumOfSquares (common/tensor/norm.h).
  void SumSquares(ConstMatrix x, Matrix sum) override;
  void Relu(ConstMatrix x, Matrix y) override;
  void ReluGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) override;
  void Tanh(ConstMatrix x, Matrix y) override;
  void TanhGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) override;
  void Sigmoid(ConstMatrix x, Matrix y) override;
  void SigmoidGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) override;
  void Dropout(ConstMatrix x, absl::Span<const int64_t> positions, uint64_t key,
               float rate, Matrix y) override;
  void Copy(ConstMatrix x, Matrix y) override;
  void Add(ConstMatrix a, ConstMatrix b, Matrix c) override;
  void Scale(float factor, ConstMatrix x, Matrix y) override;
  void AddScaled(float factor, ConstMatrix x, Matrix y) override;
  absl::Status Convolve(const Convolution& convolution, ConstMatrix x,
                        ConstMatrix kernel, Matrix y) override;
  absl::Status ConvolveKernelGradient(const Convolution& convolution,
                                      ConstMatrix x, ConstMatrix dy,
                                      Matrix kernel_gradient) override;
  absl::Status ConvolveInputGradient(const Convolution& convolution,
                                     ConstMatrix kernel, ConstMatrix dy,
                                     Matrix dx) override;
  void MaxPool(const Window& window, ConstMatrix x, Matrix y) override;
  void MaxPoolGradient(const Window& window, ConstMatrix x, ConstMatrix y,
                       ConstMatrix dy, Matrix dx) override;
  void AveragePool(const Window& window, ConstMatrix x, Matrix y) override;
  void AveragePoolGradient(const Window& window, ConstMatrix dy,
                           Matrix dx) override;
  void ColumnMoments(ConstMatrix x, Matrix mean, Matrix variance) override;
  void NormalizeColumns(ConstMatrix x, const ColumnNorm& norm,
                        ConstMatrix addend, bool relu, Matrix y) override;
  void NormalizeColumnsGradient(ConstMatrix x, const ColumnNorm& norm,
                                bool relu, ConstMatrix dy, Matrix dscale,
                                Matrix doffset, Matrix dx) override;
  void NormalizeRows(ConstMatrix x, float epsilon, ConstMatrix scale,
                     ConstMatrix offset, Matrix moments, Matrix y) override;
  void NormalizeRowsGradient(ConstMatrix x, ConstMatrix scale,
                             ConstMatrix moments, ConstMatrix dy, Matrix dscale,
                             Matrix doffset, Matrix dx) override;
  absl::StatusOr<DeviceBags> UploadBags(const Bags& bags,
                                        BagsBuffer* staging) override;
  void SumBags(const DeviceBags& bags, ConstMatrix rows, Matrix y) override;
  void SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                       Matrix drows) override;
  void PairwiseBags(const DeviceBags& bags, ConstMatrix rows, Matrix sums,
                    Matrix y) override;
  void AddPairwiseBagsGradient(const DeviceBags& bags, ConstMatrix rows,
                               ConstMatrix sums, ConstMatrix dy,
                               Matrix drows) override;
  void DotPairs(ConstMatrix x, int64_t n, Matrix y) override;
  void DotPairsGradient(ConstMatrix x, int64_t n, ConstMatrix dy,
                        Matrix dx) override;
  void CopyColumns(ConstMatrix x, int64_t from, int64_t count, Matrix y,
                   int64_t to) override;
  void AddColumns(ConstMatrix x, int64_t from, int64_t count, Matrix y,
                  int64_t to) override;
  absl::StatusOr<LossSums> SoftmaxCrossEntropy(ConstMatrix logits,
                                               const Targets& targets,
                                               Matrix* gradient) override;
  absl::StatusOr<LossSums> SigmoidCrossEntropy(ConstMatrix logits,
                                               const Targets& targets,
                                               Matrix* gradient) override;
  absl::StatusOr<LossSums> MeanSquaredError(ConstMatrix outputs,
                                            const Targets& targets,
                                            Matrix* gradient) override;
  absl::StatusOr<LossSums> MeanAbsoluteError(ConstMatrix outputs,
                                             const Targets& targets,
                                             Matrix* gradient) override;
  absl::StatusOr<LossSums> Huber(ConstMatrix outputs, const Targets& targets,
                                 float delta, Matrix* gradient) override;

 private:
  // c = beta c + form_a(a) form_b(b).
  void Multiply(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                float beta, Matrix c);
  explicit CpuBackend(Options options) : options_(options) {}

  // Calls compute(depthwise, memory), which computes a depthwise convolution
  // with a Depthwise and memory of its size. Errors: those of Reserve.
  template <typename Compute>
  absl::Status ComputeDepthwise(const Convolution& convolution, int64_t images,
                                const Compute& compute);

  // Replaces a product's factors with copies that are rounded to
  // `options_.precision`. Errors: those of Reserve.
  absl::Status RoundFactors(ConstMatrix* a, ConstMatrix* b);
  // Rounds the result of an operation if only its rounded values are wanted.
  void RoundResult(Matrix made) const;

  const Options options_;
  // The first error of an operation that returns no status. Each later call
  // that returns a status returns this error.
  absl::Status error_;
  // The threads of depthwise convolutions, started by the first that is large
  // enough. Null before, and if there is only one thread.
  std::unique_ptr<ThreadPool> pool_;
  // The pixels that the windows of a convolution see, one row per window, or
  // what a depthwise convolution needs. Kept to reuse the memory.
  DeviceBuffer columns_;
  // The rounded factors of a product.
  DeviceBuffer rounded_a_;
  DeviceBuffer rounded_b_;
  // The transposed vectors of one row in DotPairs.
  DeviceBuffer transposed_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_CPU_BACKEND_H_
