// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_STREAM_BACKEND_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_STREAM_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/backend/backend.h"
#include "worker/backend/pinned_ranges.h"
#include "worker/backend/stream/device_math.h"
#include "worker/backend/stream/device_runtime.h"
#include "worker/backend/stream/ordered_streams.h"

namespace holdfast {

// The backend on a device whose streams work while the host continues:
// OrderedStreams has the streams and the device's memory, and decides which
// work waits for which, and when the host waits; DeviceMath does the
// arithmetic.
//
// Thread-compatible, with the exceptions of Backend: Await and ReadLoss use
// nothing but OrderedStreams::Await.
class StreamBackend final : public Backend {
 public:
  struct Options {
    // The device's name for messages, such as "cuda:0".
    std::string name;
    Description description;
    // The ranges of pinned memory, shared with other backends whose devices can
    // copy from the same memory. Null: this backend has its own.
    std::shared_ptr<PinnedRanges> pinned;
  };

  StreamBackend(std::unique_ptr<DeviceRuntime> runtime,
                std::unique_ptr<DeviceMath> math, Options options);

  Description Describe() const override { return description_; }
  bool IsAsynchronous() const override { return true; }
  void SetTracer(Tracer* tracer) override;

  absl::Status Reserve(int64_t size, DeviceBuffer* buffer) override {
    return streams_.Reserve(size, buffer);
  }
  bool RoundsActivations() const override { return math_->RoundsActivations(); }
  absl::StatusOr<Matrix> ReserveFactor(int64_t rows, int64_t cols, bool alone,
                                       DeviceBuffer* buffer) override;
  absl::StatusOr<ConstMatrix> Upload(absl::Span<const float> host, int64_t rows,
                                     int64_t cols,
                                     DeviceBuffer* staging) override;
  absl::StatusOr<HostBuffer> AllocateHost(int64_t size) override {
    return streams_.AllocateHost(size);
  }
  HostMemory* host_memory() override { return streams_.host_memory(); }
  absl::Status AwaitUploads() override { return streams_.AwaitUploads(); }
  absl::StatusOr<Download> StartDownload(ConstMatrix matrix) override {
    return streams_.StartDownload(matrix);
  }
  absl::StatusOr<bool> HasArrived(const Download& download) override {
    return streams_.HasArrived(download);
  }
  absl::Status Await(const Download& download) override {
    return streams_.Await(download);
  }
  absl::Status Share(ConstMatrix matrix, SharedMatrix* shared) override {
    return streams_.Share(matrix, shared);
  }
  absl::StatusOr<ConstMatrix> Fetch(const SharedMatrix& shared,
                                    DeviceBuffer* staging) override {
    return streams_.Fetch(shared, staging);
  }
  void FetchOverHost(const SharedMatrix& shared) override {
    streams_.FetchOverHost(shared);
  }

  absl::Status Custom(absl::Span<const ConstMatrix> touched,
                      CustomOperation operation) override;
  void MatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
              Matrix c) override;
  void AddMatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                 Matrix c) override;
  void AddBias(ConstMatrix bias, Matrix y) override;
  void SumRows(ConstMatrix x, Matrix sums) override;
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
  absl::StatusOr<PendingLoss> StartLoss(const LossFunction& loss,
                                        ConstMatrix outputs,
                                        const Targets& targets,
                                        Matrix* gradient) override;
  absl::StatusOr<LossSums> ReadLoss(const PendingLoss& loss) override;

 private:
  absl::Status Multiply(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                        bool add, Matrix c);
  absl::StatusOr<LossSums> Loss(const LossFunction& loss, ConstMatrix outputs,
                                const Targets& targets, Matrix* gradient);

  const Description description_;
  const std::unique_ptr<DeviceRuntime> runtime_;
  const std::unique_ptr<DeviceMath> math_;
  OrderedStreams streams_;
  DeviceBuffer loss_sums_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_STREAM_BACKEND_H_
