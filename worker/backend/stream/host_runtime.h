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
// streams are queues, and a scheduler does their work in a random order that
// streams, events and waits allow. Work is done at any time after it was
// enqueued, but before a wait of the host for it ends, in the thread of some
// call. The same `seed` gives the same order, as long as the calls of all
// threads come in the same order.
//
// An ordering error shows in the results:
//
//  - memory is filled with NaN when it is allocated, and when it is freed;
//  - a copy reads its source only when the scheduler does the copy, and the
//    copy's target is NaN for some time before that.
//
// Devices of one Machine can wait for each other's events and copy from each
// other's memory, and the scheduler does the work of all these devices.
//
// The machine has a clock of its own: each item of a stream, including a wait,
// takes one microsecond, and no time passes between items.
//
// Thread-compatible, with the exceptions of DeviceRuntime; each device of a
// machine may be used by a different thread.
class HostRuntime final : public DeviceRuntime {
 public:
  // The devices that can reach each other. `mutex` guards the members, and the
  // state of the devices.
  struct Machine {
    absl::Mutex mutex;
    std::vector<HostRuntime*> devices;
    // The number of items that have been done, which is the time in
    // microseconds.
    int64_t time = 0;
    // The end of each range of pinned memory, allocated or registered, keyed by
    // its first byte.
    std::map<const char*, const char*> pinned;
  };

  struct Options {
    uint64_t seed = 0;
    // The machine that the device belongs to. Null: a machine of its own.
    std::shared_ptr<Machine> machine;
    // The size of the device's memory. By default so large that no test reaches
    // it.
    int64_t total_bytes = int64_t{1} << 40;
    // Waits of the first stream for events of the second do nothing, so that
    // tests can see that these waits are needed.
    std::optional<std::pair<StreamId, StreamId>> ignored_wait;
    // Whether waits for events of other devices do nothing.
    bool ignored_peer_wait = false;
    // Whether CopyFromPeer copies zeros, as some machines do whose IOMMU
    // redirects copies between devices.
    bool wrong_peer_copies = false;
    // The stream for which Synchronize does not wait. Absent: it waits for all.
    std::optional<StreamId> ignored_synchronize;
    // Whether work is done only when the host waits for it.
    bool lazy = false;
    // Whether RegisterPinned fails.
    bool refuses_registration = false;
    // If not null, `*misuse` is set to an error when the user does what a
    // device does not tolerate: frees device memory while there is work to do;
    // frees or unregisters host memory that is yet to be copied; or copies
    // memory that is not pinned, or across the end of a pinned range.
    absl::Status* misuse = nullptr;
  };

  explicit HostRuntime(const Options& options);
  ~HostRuntime() override;

  // Enqueues `work`, which must not enqueue work itself, on `stream`.
  void Enqueue(StreamId stream, std::function<void()> work);

  // The number of allocations of device memory so far.
  int64_t allocations() const { return allocations_; }
  // The number of calls of CopyFromPeerOverHost so far.
  int64_t copies_over_host() const { return copies_over_host_; }
  // Whether all the work of `stream` has been done.
  bool IsIdle(StreamId stream);
  // Makes all later calls fail with `status`, as they do on a broken device.
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
  absl::Status CopyFromPeerOverHost(const float* theirs, int64_t size,
                                    float* staging, float* device) override;

 private:
  // A point in a stream: the end of its first `items` items.
  struct Place {
    HostRuntime* device = nullptr;
    StreamId stream = StreamId::kCompute;
    int64_t items = 0;
    // The machine's time at which an event was recorded at this point.
    int64_t recorded = 0;
  };
  struct Item {
    // Null: the item is only a wait.
    std::function<void()> work;
    // The point that must be reached before the item is done. Absent: the item
    // waits for nothing.
    std::optional<Place> after;
    // The values that the item reads, if it is a copy.
    absl::Span<const float> source;
  };
  struct Stream {
    int64_t done = 0;
    // The machine's time at which each item was done, indexed by item.
    std::vector<int64_t> times;
    std::deque<Item> queue;
    // The scheduler takes the next item from the stream with the highest
    // priority among those that can proceed.
    uint32_t priority = 0;
  };
  struct Allocation {
    std::vector<float> memory;
    float* first = nullptr;
    // The size in bytes if this is device memory; 0 if it is host memory.
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
  // Returns whether a device of the machine has yet to copy from this memory.
  bool IsRead(const void* begin, const void* end) const;
  // Frees the memory of an allocation.
  void Drop(float* memory);
  // Whether all values are in one pinned range, of any device of the machine.
  bool IsPinned(const float* host, int64_t size) const;

  // Does a random number of items, perhaps none.
  void Dawdle();
  // Does one item of any device. Returns false when no stream can proceed.
  bool Step();
  // Does the items up to `place` and those that they wait for, and no others.
  // Returns false if there are not enough items, because they have not been
  // enqueued.
  static bool Reach(const Place& place);
  void DoNext(Stream* stream);
  // Returns the machine's time of an event at `place`, which must have
  // happened.
  static int64_t TimeOf(const Place& place);

  const Options options_;
  std::mt19937_64 random_;
  // How many calls of 8, on average, do some of the enqueued work (Dawdle). 0:
  // work is done only when the host waits for it.
  uint32_t eagerness_ = 0;
  const std::shared_ptr<Machine> machine_;
  std::array<Stream, kNumStreams> streams_;
  // Indexed by event: the point at which it was last recorded. Peers hold
  // pointers to the elements.
  std::deque<Place> events_;
  // All allocations so far, including freed ones, so that work which still uses
  // freed memory finds NaN there.
  std::vector<Allocation> made_;
  int64_t device_bytes_ = 0;
  int64_t copies_over_host_ = 0;
  int64_t allocations_ = 0;
  absl::Status failure_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_HOST_RUNTIME_H_
