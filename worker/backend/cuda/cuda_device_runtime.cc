// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/cuda_device_runtime.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/backend/cuda/cuda_status.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<CudaDeviceRuntime>> CudaDeviceRuntime::Create(
    int index) {
  std::unique_ptr<CudaDeviceRuntime> runtime(new CudaDeviceRuntime(index));
  HOLDFAST_RETURN_IF_ERROR(runtime->BindThread());
  for (cudaStream_t& stream : runtime->streams_) {
    // Our streams must not synchronize with the default stream, which others
    // may use.
    HOLDFAST_RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                   "creating a stream"));
  }
  return runtime;
}

CudaDeviceRuntime::~CudaDeviceRuntime() {
  BindThread().IgnoreError();
  absl::MutexLock lock(&mutex_);
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  for (cudaStream_t stream : streams_) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

absl::Status CudaDeviceRuntime::BindThread() {
  return CudaStatus(cudaSetDevice(index_), absl::StrCat("using cuda:", index_));
}

absl::StatusOr<DeviceRuntime::Event> CudaDeviceRuntime::CreateEvent() {
  return CreateEventWith(cudaEventDisableTiming);
}

absl::StatusOr<DeviceRuntime::Event> CudaDeviceRuntime::CreateTimedEvent() {
  return CreateEventWith(cudaEventDefault);
}

absl::StatusOr<DeviceRuntime::Event> CudaDeviceRuntime::CreateEventWith(
    unsigned int flags) {
  // The host sleeps while it waits, which leaves its core to the threads that
  // make batches and communicate with the cluster.
  cudaEvent_t event;
  HOLDFAST_RETURN_IF_ERROR(CudaStatus(
      cudaEventCreateWithFlags(&event, cudaEventBlockingSync | flags),
      "creating an event"));
  absl::MutexLock lock(&mutex_);
  events_.push_back(event);
  return static_cast<Event>(events_.size() - 1);
}

absl::Status CudaDeviceRuntime::Record(Event event, StreamId stream) {
  return CudaStatus(cudaEventRecord(At(event), this->stream(stream)),
                    "recording an event");
}

absl::Status CudaDeviceRuntime::Wait(StreamId stream, Event event) {
  return CudaStatus(cudaStreamWaitEvent(this->stream(stream), At(event), 0),
                    "ordering streams");
}

DeviceRuntime::PeerEvent CudaDeviceRuntime::ForPeers(Event event) {
  return {At(event), index_};
}

absl::Status CudaDeviceRuntime::WaitForPeer(StreamId stream,
                                            const PeerEvent& event) {
  // An event is an opaque pointer.
  const auto theirs = static_cast<cudaEvent_t>(const_cast<void*>(event.event));
  return CudaStatus(cudaStreamWaitEvent(this->stream(stream), theirs, 0),
                    "ordering streams of two GPUs");
}

absl::StatusOr<bool> CudaDeviceRuntime::Query(Event event) {
  const cudaError_t error = cudaEventQuery(At(event));
  if (error == cudaErrorNotReady) {
    // Clears cudaErrorNotReady, which CUDA keeps as the last error.
    cudaGetLastError();
    return false;
  }
  HOLDFAST_RETURN_IF_ERROR(CudaStatus(error, "earlier work on the GPU"));
  return true;
}

absl::Status CudaDeviceRuntime::Synchronize(Event event) {
  return CudaStatus(cudaEventSynchronize(At(event)), "earlier work on the GPU");
}

absl::StatusOr<absl::Duration> CudaDeviceRuntime::Elapsed(Event begin,
                                                          Event end) {
  float milliseconds = 0;
  HOLDFAST_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, At(begin), At(end)),
                 "the time between two events"));
  return absl::Milliseconds(milliseconds);
}

absl::StatusOr<float*> CudaDeviceRuntime::Allocate(int64_t size) {
  void* memory = nullptr;
  HOLDFAST_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&memory, size * sizeof(float)),
                                      "allocating GPU memory"));
  return static_cast<float*>(memory);
}

void CudaDeviceRuntime::Free(float* memory) { cudaFree(memory); }

DeviceRuntime::Memory CudaDeviceRuntime::GetMemory() {
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

absl::StatusOr<float*> CudaDeviceRuntime::AllocatePinned(int64_t size) {
  void* memory = nullptr;
  HOLDFAST_RETURN_IF_ERROR(CudaStatus(
      cudaHostAlloc(&memory, size * sizeof(float), cudaHostAllocPortable),
      "allocating pinned host memory"));
  return static_cast<float*>(memory);
}

void CudaDeviceRuntime::FreePinned(float* memory) { cudaFreeHost(memory); }

absl::Status CudaDeviceRuntime::RegisterPinned(const void* memory,
                                               size_t bytes) {
  // Read-only mappings can be pinned only for reading.
  return CudaStatus(
      cudaHostRegister(const_cast<void*>(memory), bytes,
                       cudaHostRegisterPortable | cudaHostRegisterReadOnly),
      "pinning host memory");
}

void CudaDeviceRuntime::UnregisterPinned(const void* memory) {
  // If this fails, the memory stays pinned until the context is destroyed.
  CudaStatus(cudaHostUnregister(const_cast<void*>(memory)), "").IgnoreError();
}

absl::Status CudaDeviceRuntime::CopyIn(const float* host, int64_t size,
                                       float* device) {
  return CudaStatus(
      cudaMemcpyAsync(device, host, size * sizeof(float),
                      cudaMemcpyHostToDevice, stream(StreamId::kCopyIn)),
      "a copy to the GPU");
}

absl::Status CudaDeviceRuntime::CopyOut(const float* device, int64_t size,
                                        float* host) {
  return CudaStatus(
      cudaMemcpyAsync(host, device, size * sizeof(float),
                      cudaMemcpyDeviceToHost, stream(StreamId::kCopyOut)),
      "a copy from the GPU");
}

absl::Status CudaDeviceRuntime::CopyFromPeer(int peer_device,
                                             const float* theirs, int64_t size,
                                             float* device) {
  constexpr char kWhat[] = "a copy from another GPU";
  const cudaStream_t copies = stream(StreamId::kCopyIn);
  if (peer_device == index_) {
    return CudaStatus(cudaMemcpyAsync(device, theirs, size * sizeof(float),
                                      cudaMemcpyDeviceToDevice, copies),
                      kWhat);
  }
  if (peers_.insert(peer_device).second) {
    int reachable = 0;
    HOLDFAST_RETURN_IF_ERROR(CudaStatus(
        cudaDeviceCanAccessPeer(&reachable, index_, peer_device), kWhat));
    const cudaError_t error = reachable == 0
                                  ? cudaSuccess
                                  : cudaDeviceEnablePeerAccess(peer_device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      // Another backend on this GPU has enabled it already.
      cudaGetLastError();
    } else if (error != cudaSuccess) {
      return CudaStatus(error, kWhat);
    }
  }
  return CudaStatus(cudaMemcpyPeerAsync(device, index_, theirs, peer_device,
                                        size * sizeof(float), copies),
                    kWhat);
}

absl::Status CudaDeviceRuntime::CopyFromPeerOverHost(const float* theirs,
                                                     int64_t size,
                                                     float* staging,
                                                     float* device) {
  constexpr char kWhat[] = "a copy from another GPU over host memory";
  const cudaStream_t copies = stream(StreamId::kCopyIn);
  const size_t bytes = size * sizeof(float);
  // An address says which GPU it belongs to, and any stream may copy from it.
  HOLDFAST_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(staging, theirs, bytes, cudaMemcpyDeviceToHost, copies),
      kWhat));
  return CudaStatus(
      cudaMemcpyAsync(device, staging, bytes, cudaMemcpyHostToDevice, copies),
      kWhat);
}

}  // namespace holdfast
