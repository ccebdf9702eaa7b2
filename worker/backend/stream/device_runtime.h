#ifndef HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_RUNTIME_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_RUNTIME_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace holdfast {

// What a device does side by side. The work of a stream is done in the order in
// which it was enqueued; that of two streams in any order, or at once, unless
// one waits for an event of the other.
enum class StreamId { kCompute = 0, kCopyIn = 1, kCopyOut = 2 };
inline constexpr int kNumStreams = 3;

// A device as StreamBackend sees it: streams, events, memory and copies, but no
// arithmetic. Calls that enqueue return at once; an error of the work itself
// may be returned by any later call.
//
// Thread-compatible, from any thread that has called BindThread; that call, and
// those about memory of the host, are thread-safe.
class DeviceRuntime {
 public:
  // A place in a stream that others can wait for. Ends with the runtime.
  using Event = int;

  struct Memory {
    int64_t free_bytes = 0;
    int64_t total_bytes = 0;
  };

  virtual ~DeviceRuntime() = default;

  // Makes the device that of the calling thread.
  virtual absl::Status BindThread() = 0;

  virtual absl::StatusOr<Event> CreateEvent() = 0;
  // One that also tells when it happened, which takes the device some time.
  virtual absl::StatusOr<Event> CreateTimedEvent() = 0;
  // From here on `event` means: all that was enqueued on `stream` before.
  virtual absl::Status Record(Event event, StreamId stream) = 0;
  // What is enqueued on `stream` after this is done after what `event` means at
  // the time of the call.
  virtual absl::Status Wait(StreamId stream, Event event) = 0;
  // The same for an event of another runtime of the same kind, which has told
  // what peers need of it, and where it is.
  struct PeerEvent {
    const void* event = nullptr;
    int device = 0;
  };
  virtual PeerEvent ForPeers(Event event) = 0;
  virtual absl::Status WaitForPeer(StreamId stream, const PeerEvent& event) = 0;
  // Whether what `event` means has been done.
  virtual absl::StatusOr<bool> Query(Event event) = 0;
  // Waits, on the host, until it is.
  virtual absl::Status Synchronize(Event event) = 0;
  // By the device's clock, how long after `begin` the event `end` happened.
  // Both are timed events, and what they mean has been done.
  virtual absl::StatusOr<absl::Duration> Elapsed(Event begin, Event end) = 0;

  // Memory of the device for so many values, aligned to 256 bytes.
  // Errors: RESOURCE_EXHAUSTED when it has none left.
  virtual absl::StatusOr<float*> Allocate(int64_t size) = 0;
  // Nothing enqueued may use it any longer.
  virtual void Free(float* memory) = 0;
  virtual Memory GetMemory() = 0;

  // Memory of the host that copies, of all devices, can reach while the host
  // does other things. Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<float*> AllocatePinned(int64_t size) = 0;
  virtual void FreePinned(float* memory) = 0;
  // Makes whole pages of the host's memory such, for copies to devices: they
  // may be mapped for reading only. Errors: the device's, which changes
  // nothing.
  virtual absl::Status RegisterPinned(const void* memory, size_t bytes) = 0;
  // Of what was registered from `memory` on.
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
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_RUNTIME_H_
