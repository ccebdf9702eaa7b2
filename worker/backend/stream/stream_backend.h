// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_STREAM_BACKEND_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_STREAM_BACKEND_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/backend/backend.h"
#include "worker/backend/pinned_ranges.h"
#include "worker/backend/stream/block_pool.h"
#include "worker/backend/stream/device_math.h"
#include "worker/backend/stream/device_runtime.h"
#include "worker/backend/stream/device_trace.h"
#include "worker/backend/stream/timeline.h"

namespace holdfast {

// The backend on a device whose streams work while the host continues:
// everything but the arithmetic. It tracks which stream touches which memory,
// and derives from that what waits for what:
//
//   1. An operation waits for the copies into the memory that it reads or
//      writes, and not for later copies: each copy is followed by an event. It
//      does not wait for copies out of the memory that it writes: nothing may
//      write there until those have arrived (StartDownload).
//   2. A copy to the device (Upload) waits for the operations on the memory
//      that it writes. It reads pinned memory: if the values are elsewhere (not
//      from AllocateHost or host_memory), the host first moves them to the
//      block's pinned memory, once earlier copies to and from the device no
//      longer use it.
//   3. A copy to the host (StartDownload) waits for the operations on, and for
//      the copies into, the memory that it reads.
//   4. The host waits only for downloads, for losses, in step 2, and when it is
//      told to (AwaitUploads).
//   5. A shared matrix has an event after the operations on it and the copies
//      into it. A copy from another device (Fetch), on the stream kCopyIn,
//      waits for that event, and for the operations on the memory that it
//      writes.
//
// Nothing waits for the whole device, except when it is out of memory, and on
// destruction. So gradients are copied to the host during the backward pass,
// and parameters to the device during the end of the previous step.
//
// Thread-compatible.
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
  // Waits until no work is under way.
  ~StreamBackend() override;

  Description Describe() const override { return options_.description; }
  void SetTracer(Tracer* tracer) override;

  absl::Status Reserve(int64_t size, DeviceBuffer* buffer) override;
  absl::StatusOr<Matrix> ReserveFactor(int64_t rows, int64_t cols, bool alone,
                                       DeviceBuffer* buffer) override;
  absl::StatusOr<ConstMatrix> Upload(absl::Span<const float> host, int64_t rows,
                                     int64_t cols,
                                     DeviceBuffer* staging) override;
  absl::StatusOr<HostBuffer> AllocateHost(int64_t size) override;
  HostMemory* host_memory() override { return host_memory_.get(); }
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
  // The matrices that an operation reads and writes.
  using Touched = std::initializer_list<ConstMatrix>;

  // Prepares a call that uses the device; returns an earlier error, if any.
  absl::Status Enter();
  // Makes the operation that the caller enqueues next wait for what it must.
  absl::Status Order(Touched touched);
  // Orders and enqueues operation(workspace), which returns a status; its
  // workspace has room for `workspace` values. In a trace it has the name of
  // the calling function.
  template <typename Operation>
  absl::Status Run(Touched touched, int64_t workspace, Operation operation,
                   const char* name = __builtin_FUNCTION());
  // The same for operation(), without a workspace.
  template <typename Operation>
  absl::Status Run(Touched touched, Operation operation,
                   const char* name = __builtin_FUNCTION());
  // Calls operation(), which enqueues work; in a trace this is a span of
  // `stream`.
  template <typename Operation>
  absl::Status Traced(StreamId stream, const char* name, int64_t bytes,
                      Operation operation);
  absl::Status Multiply(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                        bool add, Matrix c);
  // Keeps an error for the next call that can return it.
  void Keep(absl::Status status);

  // Errors: INTERNAL if the value is not in this backend's memory.
  absl::StatusOr<Block*> BlockOf(const float* value);
  // The numbers of values in each of the consecutive pinned ranges that the
  // values are in. Empty if some values are not pinned.
  std::vector<int64_t> PinnedSizes(const float* host, int64_t size) const;
  // Values on the host, and the offset in a buffer that they go to.
  struct Source {
    const void* host = nullptr;
    int64_t size = 0;
    int64_t offset = 0;
  };
  // Copies the sources, which are in ascending order of their offsets, into the
  // first `size` values of `buffer`, which it reserves. Values between them are
  // undefined.
  absl::Status CopyIn(absl::Span<const Source> sources, int64_t size,
                      DeviceBuffer* buffer);
  // The same for one source.
  absl::Status CopyIn(const void* host, int64_t size, DeviceBuffer* buffer) {
    return CopyIn({{host, size}}, size, buffer);
  }
  // The same into memory of this backend's own, which stays valid for the next
  // operation. `bytes` must be a multiple of 4.
  absl::StatusOr<ConstMatrix> CopySmall(const void* host, int64_t bytes);

  absl::StatusOr<LossSums> Loss(const LossFunction& loss, ConstMatrix outputs,
                                const Targets& targets, Matrix* gradient);
  absl::Status AwaitStreams();
  // Collects the spans of what the device has done, if there is a trace.
  absl::Status CollectTrace();

  const Options options_;
  const std::unique_ptr<DeviceRuntime> runtime_;
  const std::unique_ptr<DeviceMath> math_;
  Timeline compute_;
  Timeline in_;
  Timeline out_;
  BlockPool pool_;
  // Null without a tracer.
  std::unique_ptr<DeviceTrace> trace_;
  // Contains the memory of AllocateHost and host_memory(), and that of other
  // backends that share it.
  const std::shared_ptr<PinnedRanges> pinned_;
  const std::unique_ptr<HostMemory> host_memory_;
  // The first error; it has broken the device's state.
  absl::Status error_;

  DeviceBuffer workspace_;
  DeviceBuffer loss_sums_;
  // Labels and positions take these in turn, so that the host seldom waits for
  // the previous copy.
  std::array<DeviceBuffer, 8> small_;
  size_t next_small_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_STREAM_BACKEND_H_
