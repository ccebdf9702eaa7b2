// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_HOST_RUNTIME_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_HOST_RUNTIME_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "worker/backend/stream/device_runtime.h"

namespace holdfast {

// A fake device on the host, for tests of how a device's work is ordered: its
// streams are queues, and a scheduler seeded with `seed` does their work in any
// order that streams, events and waits allow, at any time from when it is
// enqueued until a wait of the host forces it. The same seed gives the same
// order.
//
// An ordering error shows in the results:
//
//  - memory is filled with NaN when it is allocated, and when it is freed;
//  - a copy reads its source when the copy is done, and its target is NaN for
//    some time before that.
//
// Devices of one Machine can wait for each other's events and copy from each
// other's memory, and the scheduler does the work of all.
//
// By the machine's clock each item of a stream, including a wait, takes a
// microsecond, and no time passes between items.
//
// Thread-compatible; each device of a machine may be used by a different
// thread.
class HostRuntime final : public DeviceRuntime {
 public:
  // The devices of a machine. `mutex` guards the members, and the devices'
  // state.
  struct Machine {
    absl::Mutex mutex;
    std::vector<HostRuntime*> devices;
    // The number of items done.
    int64_t time = 0;
    // The end of each range of pinned memory, allocated or registered, keyed by
    // its first byte.
    std::map<const char*, const char*> pinned;
  };

  struct Options {
    uint64_t seed = 0;
    // Null: the device has a machine of its own.
    std::shared_ptr<Machine> machine;
    // The size of the device's memory. Default: no limit that a test would
    // reach.
    int64_t total_bytes = int64_t{1} << 40;
    // Lets tests see that a wait is needed: waits of the first stream for
    // events of the second do nothing.
    std::optional<std::pair<StreamId, StreamId>> ignored_wait;
    // Waits for events of other devices do nothing.
    bool ignored_peer_wait = false;
    // The host does not wait for this stream.
    std::optional<StreamId> ignored_synchronize;
    // Only work that the host waits for is done.
    bool lazy = false;
    // Host memory can be allocated, but not registered.
    bool refuses_registration = false;
    // Set, if not null, when something was done that a device does not
    // tolerate: device memory was freed while there is work to do; host memory
    // that is yet to be copied was freed or unregistered; a copy reads memory
    // that is not pinned, or crosses the end of a pinned range.
    absl::Status* misuse = nullptr;
  };

  explicit HostRuntime(const Options& options);
  ~HostRuntime() override;

  // Enqueues `work` on `stream`. It must not enqueue work itself.
  void Enqueue(StreamId stream, std::function<void()> work);

  // The number of allocations of device memory so far.
  int64_t allocations() const { return allocations_; }
  // Whether all the work of `stream` has been done.
  bool IsIdle(StreamId stream);
  // From here on calls fail with this error, as they do on a broken device.
  void FailWith(absl::Status status);

  absl::Status BindThread() override;
  absl::StatusOr<Event> CreateEvent() override;
  absl::StatusOr<Event> CreateTimedEvent() override { return CreateEvent(); }
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
  absl::Status CopyFromPeer(int peer_device, const float* theirs, int64_t size,
                            float* device) override;

 private:
  // A place in a stream, after this number of items.
  struct Place {
    HostRuntime* device = nullptr;
    StreamId stream = StreamId::kCompute;
    int64_t items = 0;
    // When an event was recorded there.
    int64_t recorded = 0;
  };
  struct Item {
    // Null: the item is only a wait.
    std::function<void()> work;
    // The item must not be done before this place is reached.
    std::optional<Place> after;
    // The values that a copy reads.
    absl::Span<const float> source;
  };
  struct Stream {
    int64_t done = 0;
    // When each item was done, indexed by item.
    std::vector<int64_t> times;
    std::deque<Item> queue;
    // The runnable stream with the highest priority is next.
    uint32_t priority = 0;
  };
  struct Allocation {
    std::vector<float> memory;
    float* first = nullptr;
    // The size in device memory; 0 for host memory.
    int64_t bytes = 0;
    // Whether it is pinned host memory that has not been freed.
    bool pinned = false;
  };

  Stream& At(StreamId stream) { return streams_[static_cast<int>(stream)]; }
  static bool IsDone(const Place& place) {
    return place.items == 0 ||
           place.device->At(place.stream).done >= place.items;
  }
  void EnqueueCopy(StreamId stream, const float* from, int64_t size, float* to);
  absl::Status EnqueueWait(StreamId stream, const Place& place);
  float* Make(int64_t size, int64_t device_bytes);
  void Misused(absl::string_view what);
  bool HasWork() const;
  // Whether a device of the machine has yet to copy from this memory.
  bool IsRead(const void* begin, const void* end) const;
  // Frees the memory of an allocation.
  void Drop(float* memory);
  // Whether all values are in one pinned range, of any device of the machine.
  bool IsPinned(const float* host, int64_t size) const;

  // Does some of the work, perhaps none.
  void Dawdle();
  // Does one item of any device. Returns false when no stream can proceed.
  bool Step();
  // Does what must be done before `place`, and no more. Returns false when that
  // is impossible.
  static bool Reach(const Place& place);
  void DoNext(Stream* stream);
  // The time of an event at `place`, which has happened.
  static int64_t TimeOf(const Place& place);

  const Options options_;
  std::mt19937_64 random_;
  // How many of 8 calls do work. 0: none; work is done only when it is waited
  // for.
  uint32_t eagerness_ = 0;
  const std::shared_ptr<Machine> machine_;
  std::array<Stream, kNumStreams> streams_;
  // Indexed by event. Peers hold pointers to the elements.
  std::deque<Place> events_;
  // Includes freed memory, so that work which still uses it finds NaN there.
  std::vector<Allocation> made_;
  int64_t device_bytes_ = 0;
  int64_t allocations_ = 0;
  absl::Status failure_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_HOST_RUNTIME_H_
