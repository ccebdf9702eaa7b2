// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_RUNTIME_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_RUNTIME_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace holdfast {

// A device's streams. The work of one stream is done in the order in which it
// was enqueued. The work of two streams is done in any order, or concurrently,
// unless one stream waits for an event of the other.
enum class StreamId { kCompute = 0, kCopyIn = 1, kCopyOut = 2 };
inline constexpr int kNumStreams = 3;

// A device as StreamBackend sees it: streams, events, memory and copies, but no
// arithmetic. Calls that enqueue work return at once; an error of the work
// itself may be returned by any later call.
//
// Thread-compatible; usable from any thread that has called BindThread.
// BindThread, the functions for host memory, and Synchronize are thread-safe:
// a thread may synchronize with an event while another goes on using the
// device, as long as nobody records that event meanwhile.
class DeviceRuntime {
 public:
  // A point in the work of a stream, for which the host and other streams can
  // wait (Record). An event lives as long as the runtime.
  using Event = int;

  struct Memory {
    int64_t free_bytes = 0;
    int64_t total_bytes = 0;
  };

  virtual ~DeviceRuntime() = default;

  // Makes this device the calling thread's current one.
  virtual absl::Status BindThread() = 0;

  virtual absl::StatusOr<Event> CreateEvent() = 0;
  // Creates an event that also records the time at which it happens, which
  // takes the device some time.
  virtual absl::StatusOr<Event> CreateTimedEvent() = 0;
  // Makes `event` stand for all work that was enqueued on `stream` before this
  // call.
  virtual absl::Status Record(Event event, StreamId stream) = 0;
  // Makes all work that is enqueued on `stream` after this call wait until the
  // work that `event` stands for now is done.
  virtual absl::Status Wait(StreamId stream, Event event) = 0;
  // WaitForPeer is the same for an event of a peer, another runtime of the same
  // kind. The peer's ForPeers returns what this runtime needs to know about the
  // event: a handle, and the device that the event is on.
  struct PeerEvent {
    const void* event = nullptr;
    int device = 0;
  };
  virtual PeerEvent ForPeers(Event event) = 0;
  virtual absl::Status WaitForPeer(StreamId stream, const PeerEvent& event) = 0;
  // Whether the work that `event` stands for is done.
  virtual absl::StatusOr<bool> Query(Event event) = 0;
  // Makes the host wait until the work that `event` stands for is done.
  virtual absl::Status Synchronize(Event event) = 0;
  // Returns the time from `begin` to `end` by the device's clock. Both must be
  // timed events, and must have happened.
  virtual absl::StatusOr<absl::Duration> Elapsed(Event begin, Event end) = 0;

  // Allocates device memory for `size` values, aligned to 256 bytes.
  // Errors: RESOURCE_EXHAUSTED when the device does not have enough memory
  // left.
  virtual absl::StatusOr<float*> Allocate(int64_t size) = 0;
  // Frees device memory, which no enqueued work may still use.
  virtual void Free(float* memory) = 0;
  virtual Memory GetMemory() = 0;

  // Allocates host memory that all devices can copy to and from while the host
  // does other work. Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<float*> AllocatePinned(int64_t size) = 0;
  virtual void FreePinned(float* memory) = 0;
  // Pins existing host memory, which consists of whole pages, for copies to
  // devices. The pages may be mapped read-only. Errors: the device's; the
  // memory is then not pinned.
  virtual absl::Status RegisterPinned(const void* memory, size_t bytes) = 0;
  // Undoes the RegisterPinned for memory that begins at `memory`.
  virtual void UnregisterPinned(const void* memory) = 0;

  // Enqueues a copy from pinned memory to the device, on kCopyIn.
  virtual absl::Status CopyIn(const float* host, int64_t size,
                              float* device) = 0;
  // Enqueues a copy from the device to pinned memory, on kCopyOut.
  virtual absl::Status CopyOut(const float* device, int64_t size,
                               float* host) = 0;
  // Enqueues a copy from memory of another runtime's device to this one's, on
  // kCopyIn.
  virtual absl::Status CopyFromPeer(int peer_device, const float* theirs,
                                    int64_t size, float* device) = 0;
  // The same by two copies, to `staging`, which is pinned host memory for
  // `size` values, and from there to this device.
  virtual absl::Status CopyFromPeerOverHost(const float* theirs, int64_t size,
                                            float* staging, float* device) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_RUNTIME_H_
