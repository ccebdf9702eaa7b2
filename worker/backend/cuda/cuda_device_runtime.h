// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_CUDA_DEVICE_RUNTIME_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_CUDA_DEVICE_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/backend/stream/device_runtime.h"

namespace holdfast {

// Streams, events and memory of a GPU.
//
// Thread-compatible, with the exceptions of DeviceRuntime.
class CudaDeviceRuntime final : public DeviceRuntime {
 public:
  // Creates the runtime of the GPU with this index. Errors: those of
  // CudaStatus.
  static absl::StatusOr<std::unique_ptr<CudaDeviceRuntime>> Create(int index);
  ~CudaDeviceRuntime() override;

  cudaStream_t stream(StreamId stream) const {
    return streams_[static_cast<int>(stream)];
  }

  absl::Status BindThread() override;
  absl::StatusOr<Event> CreateEvent() override;
  absl::StatusOr<Event> CreateTimedEvent() override;
  absl::Status Record(Event event, StreamId stream) override;
  absl::Status Wait(StreamId stream, Event event) override;
  PeerEvent ForPeers(Event event) override;
  absl::Status WaitForPeer(StreamId stream, const PeerEvent& event) override;
  absl::StatusOr<bool> Query(Event event) override;
  absl::Status Synchronize(Event event) override;
  absl::StatusOr<absl::Duration> Elapsed(Event begin, Event end) override;
  absl::StatusOr<float*> Allocate(int64_t size) override;
  void Free(float* memory) override;
  Memory GetMemory() override;
  absl::StatusOr<float*> AllocatePinned(int64_t size) override;
  void FreePinned(float* memory) override;
  absl::Status RegisterPinned(const void* memory, size_t bytes) override;
  void UnregisterPinned(const void* memory) override;
  absl::Status CopyIn(const float* host, int64_t size, float* device) override;
  absl::Status CopyOut(const float* device, int64_t size, float* host) override;
  // Copies through the host if the GPUs cannot reach each other.
  absl::Status CopyFromPeerOverHost(const float* theirs, int64_t size,
                                    float* staging, float* device) override;
  absl::Status CopyFromPeer(int peer_device, const float* theirs, int64_t size,
                            float* device) override;

 private:
  explicit CudaDeviceRuntime(int index) : index_(index) {}

  absl::StatusOr<Event> CreateEventWith(unsigned int flags);
  cudaEvent_t At(Event event) const {
    absl::MutexLock lock(&mutex_);
    return events_[event];
  }

  const int index_;
  std::array<cudaStream_t, kNumStreams> streams_ = {};
  // One thread may wait for an event while another creates the next.
  mutable absl::Mutex mutex_;
  // Indexed by Event.
  std::vector<cudaEvent_t> events_ ABSL_GUARDED_BY(mutex_);
  // The indices of the other GPUs to which direct access from this one has been
  // requested. It may have been refused, because it is impossible.
  std::set<int> peers_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDA_DEVICE_RUNTIME_H_
