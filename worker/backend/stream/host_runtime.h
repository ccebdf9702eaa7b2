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

// A stand-in for a device on the host, for tests of what orders a device's
// work: its streams are queues, and a scheduler that draws from `seed` does
// their work in any order that streams, events and waits allow, as late as
// nothing but a wait of the host forces it or as early as it is enqueued. One
// seed gives one order.
//
// An ordering error shows in the results:
//
//  - memory holds NaN when it is allocated, and when it is freed;
//  - a copy reads its source when it is done, and its target is NaN for some
//    time before that.
//
// Devices of one Machine may wait for one another's events and copy from one
// another's memory, and the scheduler does the work of all.
//
// By the machine's clock each item of a stream, a wait too, takes a
// microsecond, and between them no time passes.
//
// Thread-compatible; the devices of a machine may be used by a thread each.
class HostRuntime final : public DeviceRuntime {
 public:
  // Which devices there are. Guarded by its mutex, as are they.
  struct Machine {
    absl::Mutex mutex;
    std::vector<HostRuntime*> devices;
    // Items done.
    int64_t time = 0;
    // Pinned memory, that which was registered too: by the first byte, the one
    // behind the last.
    std::map<const char*, const char*> pinned;
  };

  struct Options {
    uint64_t seed = 0;
    // Null: one of its own.
    std::shared_ptr<Machine> machine;
    // Of the device. Default: no limit that a test would meet.
    int64_t total_bytes = int64_t{1} << 40;
    // To see that a wait is needed: what waits of this stream, for events of
    // the other, do nothing.
    std::optional<std::pair<StreamId, StreamId>> ignored_wait;
    // What waits for events of other devices does nothing.
    bool ignored_peer_wait = false;
    // The host does not wait for this one.
    std::optional<StreamId> ignored_synchronize;
    // Nothing is done but what the host waits for.
    bool lazy = false;
    // Memory of the host can be taken, but not registered.
    bool refuses_registration = false;
    // Where it is told, if not null, that something was done which a device
    // does not bear: memory of it freed while there is work to do; memory of
    // the host freed, or no longer registered, that is yet to be copied; a copy
    // from memory that is not pinned, or beyond a range of it.
    absl::Status* misuse = nullptr;
  };

  explicit HostRuntime(const Options& options);
  ~HostRuntime() override;

  // Of the work of `stream`. Work must not enqueue any.
  void Enqueue(StreamId stream, std::function<void()> work);

  // Of memory of the device, so far.
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
  // A place in a stream: so many items of it.
  struct Place {
    HostRuntime* device = nullptr;
    StreamId stream = StreamId::kCompute;
    int64_t items = 0;
    // When an event was recorded there.
    int64_t recorded = 0;
  };
  struct Item {
    // Null: nothing but a wait.
    std::function<void()> work;
    // Not before this.
    std::optional<Place> after;
    // Of a copy: what it reads.
    absl::Span<const float> source;
  };
  struct Stream {
    int64_t done = 0;
    // By item, when it was done.
    std::vector<int64_t> times;
    std::deque<Item> queue;
    // The runnable stream of the highest is next.
    uint32_t priority = 0;
  };
  struct Allocation {
    std::vector<float> memory;
    float* first = nullptr;
    // Of the device, or 0.
    int64_t bytes = 0;
    // Of the host, and not freed.
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
  // Whether a device of the machine has yet to copy from there.
  bool IsRead(const void* begin, const void* end) const;
  // Ends with the memory of an allocation.
  void Drop(float* memory);
  // In one range, of any device of the machine.
  bool IsPinned(const float* host, int64_t size) const;

  // Does some of the work, perhaps none.
  void Dawdle();
  // Does one item of any device. False when no stream can go on.
  bool Step();
  // Does what must be done before `place`, and no more. False when that cannot
  // be.
  static bool Reach(const Place& place);
  void DoNext(Stream* stream);
  // Of an event there, which has happened.
  static int64_t TimeOf(const Place& place);

  const Options options_;
  std::mt19937_64 random_;
  // Of 8 calls, how many do work. 0: none, and lazily.
  uint32_t eagerness_ = 0;
  const std::shared_ptr<Machine> machine_;
  std::array<Stream, kNumStreams> streams_;
  // By event. Peers hold pointers to them.
  std::deque<Place> events_;
  // With what was freed, so that whoever still uses it finds NaN there.
  std::vector<Allocation> made_;
  int64_t device_bytes_ = 0;
  int64_t allocations_ = 0;
  absl::Status failure_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_HOST_RUNTIME_H_
