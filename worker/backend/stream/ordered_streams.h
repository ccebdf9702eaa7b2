// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_ORDERED_STREAMS_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_ORDERED_STREAMS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/process/host_memory.h"
#include "common/trace/trace.h"
#include "worker/backend/backend.h"
#include "worker/backend/pinned_ranges.h"
#include "worker/backend/stream/block_pool.h"
#include "worker/backend/stream/device_runtime.h"
#include "worker/backend/stream/device_trace.h"
#include "worker/backend/stream/pinned_memory.h"
#include "worker/backend/stream/timeline.h"

namespace holdfast {

// The streams of a device, which work while the host continues, and the memory
// in which they work. Tracks which stream touches which memory, and derives
// from that which work must wait for which:
//
//   1. An operation (Run) waits for the copies into the memory that it reads or
//      writes, but not for later copies, because each copy is followed by an
//      event. The operation does not wait for copies out of the memory that it
//      writes: the caller must not write there until these have arrived
//      (StartDownload).
//   2. A copy to the device (CopyIn) waits for the operations on the memory
//      that it writes. The copy reads pinned memory. If the values are in other
//      memory, that is not from AllocateHost or host_memory, the host first
//      moves them to Block::pinned, once earlier copies to and from the device
//      no longer use it.
//   3. A copy to the host (StartDownload) waits for the operations on, and for
//      the copies into, the memory that it reads.
//   4. The host waits only for downloads, for Block::pinned (2), and in
//      AwaitUploads.
//   5. A shared matrix (Share) has an event after the operations on it and the
//      copies into it. A copy from another device (Fetch), on the stream
//      kCopyIn, waits for the event of the matrix that it reads, and for the
//      operations on the memory that it writes.
//
// Nothing waits for the whole device, except when it is out of memory, and when
// the object is destroyed. So gradients are copied to the host during the
// backward pass, and parameters to the device during the end of the previous
// step.
//
// After an error of the device, whose state is then unknown, all calls return
// that error. Methods that have the name of a method of Backend are specified
// there.
//
// Thread-compatible, except that Await, which uses nothing but error_, the
// runtime, and the events of out_, may be called by other threads.
class OrderedStreams {
 public:
  // `runtime` must outlive the object. `device` is the device's name for
  // messages. `pinned`: as in StreamBackend::Options.
  OrderedStreams(DeviceRuntime* runtime, std::string device,
                 std::shared_ptr<PinnedRanges> pinned);
  // Waits until no work is under way.
  ~OrderedStreams();

  OrderedStreams(const OrderedStreams&) = delete;
  OrderedStreams& operator=(const OrderedStreams&) = delete;

  // Records the work that follows. Null: records nothing.
  void SetTracer(Tracer* tracer);
  // Passes the spans of the work that the device has done to the tracer, if
  // there is one. Must be called when the device is idle.
  absl::Status CollectTrace();

  // Keeps an error, if `status` is one, for the next call that can return it.
  void Keep(absl::Status status);

  // Calls operation(workspace), which enqueues an operation on the matrices
  // `touched` and returns a status; its workspace has room for `workspace`
  // values. `name` is the operation's name in a trace: that of the calling
  // function.
  template <typename Operation>
  absl::Status Run(absl::Span<const ConstMatrix> touched, int64_t workspace,
                   Operation operation,
                   const char* name = __builtin_FUNCTION());
  // The same for an operation() that needs no workspace.
  template <typename Operation>
  absl::Status Run(absl::Span<const ConstMatrix> touched, Operation operation,
                   const char* name = __builtin_FUNCTION());

  absl::Status Reserve(int64_t size, DeviceBuffer* buffer);

  // Values in host memory, and the offset in a buffer to which they are copied,
  // in values.
  struct Source {
    const void* host = nullptr;
    int64_t size = 0;
    int64_t offset = 0;
  };
  // Reserves `size` values in `buffer` and copies the sources, which are in
  // ascending order of their offsets, into them. Values between the sources are
  // undefined. The sources must stay as they are until AwaitUploads.
  absl::Status CopyIn(absl::Span<const Source> sources, int64_t size,
                      DeviceBuffer* buffer);
  // Does the same for one source, at offset 0.
  absl::Status CopyIn(const void* host, int64_t size, DeviceBuffer* buffer) {
    return CopyIn({{host, size}}, size, buffer);
  }
  // Copies `bytes` bytes, a multiple of 4, from the host into memory of the
  // object's own, which stays valid for the next operation.
  absl::StatusOr<ConstMatrix> CopySmall(const void* host, int64_t bytes);
  absl::Status AwaitUploads();

  absl::StatusOr<HostBuffer> AllocateHost(int64_t size);
  HostMemory* host_memory() { return &host_memory_; }

  absl::StatusOr<Download> StartDownload(ConstMatrix matrix);
  absl::StatusOr<bool> HasArrived(const Download& download);
  absl::Status Await(const Download& download);

  absl::Status Share(ConstMatrix matrix, SharedMatrix* shared);
  absl::StatusOr<ConstMatrix> Fetch(const SharedMatrix& shared,
                                    DeviceBuffer* staging);
  void FetchOverHost(const SharedMatrix& shared);

 private:
  // Must begin each call that uses the device. Binds the thread to the device,
  // and returns the error of an earlier call, if there was one.
  absl::Status Enter();
  // Makes the operation that the caller enqueues next, which touches `touched`,
  // wait for all that it must wait for.
  absl::Status Order(absl::Span<const ConstMatrix> touched);
  // Calls operation(), which enqueues work on `stream`. In a trace, the work is
  // a span named `name`; `bytes` is the size of a copy.
  template <typename Operation>
  absl::Status Traced(StreamId stream, const char* name, int64_t bytes,
                      Operation operation);

  // Returns the block that contains this address. Errors: INTERNAL if the
  // address is not in this device's memory.
  absl::StatusOr<Block*> BlockOf(const float* value);
  // Divides the `size` values from `host` on at the ends of pinned ranges, and
  // returns the number of values in each. Empty if some values are not pinned.
  std::vector<int64_t> PinnedSizes(const float* host, int64_t size) const;
  absl::Status AwaitStreams();

  const std::string device_;
  DeviceRuntime& runtime_;
  Timeline compute_;
  Timeline in_;
  Timeline out_;
  BlockPool pool_;
  // Null without a tracer.
  std::unique_ptr<DeviceTrace> trace_;
  // The ranges from AllocateHost and host_memory(), and those of the other
  // devices that share this object.
  const std::shared_ptr<PinnedRanges> pinned_;
  PinnedMemory host_memory_;
  absl::Mutex mutex_;
  // The first error, after which the device's state is unknown. OK: there was
  // none.
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  // The devices from which Fetch copies over host memory.
  std::set<int> over_host_;

  DeviceBuffer workspace_;
  // Memory for labels and positions (CopySmall), used in turn, so that the host
  // seldom waits for the previous copy.
  std::array<DeviceBuffer, 8> small_;
  size_t next_small_ = 0;
};

template <typename Operation>
absl::Status OrderedStreams::Traced(StreamId stream, const char* name,
                                    int64_t bytes, Operation operation) {
  if (trace_ == nullptr) return operation();
  HOLDFAST_RETURN_IF_ERROR(trace_->Begin(stream));
  HOLDFAST_RETURN_IF_ERROR(operation());
  return trace_->End(stream, name, bytes);
}

template <typename Operation>
absl::Status OrderedStreams::Run(absl::Span<const ConstMatrix> touched,
                                 int64_t workspace, Operation operation,
                                 const char* name) {
  absl::Status status = Enter();
  if (!status.ok()) return status;
  status = Reserve(workspace, &workspace_);
  if (!status.ok()) return status;
  // The block may have had another user before, and gets another one if the
  // workspace grows.
  const Matrix memory = workspace_.View(1, workspace);
  status = Order({memory});
  if (!status.ok()) return status;
  status = Order(touched);
  if (!status.ok()) return status;
  return Traced(StreamId::kCompute, name, 0,
                [&] { return operation(memory.data); });
}

template <typename Operation>
absl::Status OrderedStreams::Run(absl::Span<const ConstMatrix> touched,
                                 Operation operation, const char* name) {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  HOLDFAST_RETURN_IF_ERROR(Order(touched));
  return Traced(StreamId::kCompute, name, 0, operation);
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_ORDERED_STREAMS_H_
