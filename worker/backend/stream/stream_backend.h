// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_STREAM_BACKEND_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_STREAM_BACKEND_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "worker/backend/backend.h"
#include "worker/backend/pinned_ranges.h"
#include "worker/backend/stream/block_pool.h"
#include "worker/backend/stream/device_math.h"
#include "worker/backend/stream/device_runtime.h"
#include "worker/backend/stream/device_trace.h"
#include "worker/backend/stream/timeline.h"

namespace holdfast {

// The backend on a device whose streams work while the host continues;
// DeviceMath does its arithmetic. The backend tracks which stream touches which
// memory, and derives from that which work must wait for which:
//
//   1. An operation waits for the copies into the memory that it reads or
//      writes, but not for later copies, because each copy is followed by an
//      event. The operation does not wait for copies out of the memory that it
//      writes: the caller must not write there until these have arrived
//      (StartDownload).
//   2. A copy to the device (Upload) waits for the operations on the memory
//      that it writes. The copy reads pinned memory. If the values are in other
//      memory, that is not from AllocateHost or host_memory, the host first
//      moves them to Block::pinned, once earlier copies to and from the device
//      no longer use it.
//   3. A copy to the host (StartDownload) waits for the operations on, and for
//      the copies into, the memory that it reads.
//   4. The host waits only for downloads, for losses, for Block::pinned (2),
//      and in AwaitUploads.
//   5. A shared matrix (Share) has an event after the operations on it and the
//      copies into it. A copy from another device (Fetch), on the stream
//      kCopyIn, waits for the event of the matrix that it reads, and for the
//      operations on the memory that it writes.
//
// Nothing waits for the whole device, except when it is out of memory, and when
// the backend is destroyed. So gradients are copied to the host during the
// backward pass, and parameters to the device during the end of the previous
// step.
//
// Thread-compatible, with the exceptions of Backend: Await and ReadLoss use
// nothing but error_, the runtime, and the events of out_.
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
  bool IsAsynchronous() const override { return true; }
  void SetTracer(Tracer* tracer) override;

  absl::Status Reserve(int64_t size, DeviceBuffer* buffer) override;
  bool RoundsActivations() const override { return math_->RoundsActivations(); }
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
  void FetchOverHost(const SharedMatrix& shared) override;

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
  // The matrices that an operation reads and writes.
  using Touched = std::initializer_list<ConstMatrix>;

  // Must begin each call that uses the device. Binds the thread to the device,
  // and returns the error of an earlier call, if there was one.
  absl::Status Enter();
  // Makes the operation that the caller enqueues next, which touches `touched`,
  // wait for all that it must wait for.
  absl::Status Order(Touched touched);
  // Calls Order and then operation(workspace), which enqueues an operation and
  // returns a status; its workspace has room for `workspace` values. `name` is
  // the operation's name in a trace: that of the calling function.
  template <typename Operation>
  absl::Status Run(Touched touched, int64_t workspace, Operation operation,
                   const char* name = __builtin_FUNCTION());
  // The same for an operation() that needs no workspace.
  template <typename Operation>
  absl::Status Run(Touched touched, Operation operation,
                   const char* name = __builtin_FUNCTION());
  // Calls operation(), which enqueues work on `stream`. In a trace, the work is
  // a span named `name`; `bytes` is the size of a copy.
  template <typename Operation>
  absl::Status Traced(StreamId stream, const char* name, int64_t bytes,
                      Operation operation);
  absl::Status Multiply(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                        bool add, Matrix c);
  // Keeps an error for the next call that can return it.
  void Keep(absl::Status status);

  // Returns the block that contains this address. Errors: INTERNAL if the
  // address is not in this backend's memory.
  absl::StatusOr<Block*> BlockOf(const float* value);
  // Divides the `size` values from `host` on at the ends of pinned ranges, and
  // returns the number of values in each. Empty if some values are not pinned.
  std::vector<int64_t> PinnedSizes(const float* host, int64_t size) const;
  // Values in host memory, and the offset in a buffer to which they are copied,
  // in values.
  struct Source {
    const void* host = nullptr;
    int64_t size = 0;
    int64_t offset = 0;
  };
  // Reserves `size` values in `buffer` and copies the sources, which are in
  // ascending order of their offsets, into them. Values between the sources are
  // undefined.
  absl::Status CopyIn(absl::Span<const Source> sources, int64_t size,
                      DeviceBuffer* buffer);
  // Does the same for one source, at offset 0.
  absl::Status CopyIn(const void* host, int64_t size, DeviceBuffer* buffer) {
    return CopyIn({{host, size}}, size, buffer);
  }
  // Copies `bytes` bytes, a multiple of 4, from the host into memory of the
  // backend's own, which stays valid for the next operation.
  absl::StatusOr<ConstMatrix> CopySmall(const void* host, int64_t bytes);

  absl::StatusOr<LossSums> Loss(const LossFunction& loss, ConstMatrix outputs,
                                const Targets& targets, Matrix* gradient);
  absl::Status AwaitStreams();
  // Passes the spans of the work that the device has done to the tracer, if
  // there is one.
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
  // The ranges from AllocateHost and host_memory(), and those of the other
  // backends that share this object.
  const std::shared_ptr<PinnedRanges> pinned_;
  const std::unique_ptr<HostMemory> host_memory_;
  absl::Mutex mutex_;
  // The first error, after which the device's state is unknown. OK: there was
  // none.
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  // The devices from which Fetch copies over host memory.
  std::set<int> over_host_;

  DeviceBuffer workspace_;
  DeviceBuffer loss_sums_;
  // Memory for labels and positions (CopySmall), used in turn, so that the host
  // seldom waits for the previous copy.
  std::array<DeviceBuffer, 8> small_;
  size_t next_small_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_STREAM_BACKEND_H_
