#ifndef HOLDFAST_WORKER_BACKEND_STREAM_HOST_RUNTIME_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_HOST_RUNTIME_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
// By its clock each item of a stream, a wait too, takes a microsecond, and
// between them no time passes.
//
// Thread-compatible.
class HostRuntime final : public DeviceRuntime {
 public:
  struct Options {
    uint64_t seed = 0;
    // Of the device. Default: no limit that a test would meet.
    int64_t total_bytes = int64_t{1} << 40;
    // To see that a wait is needed: what waits of this stream, for events of
    // the other, do nothing.
    std::optional<std::pair<StreamId, StreamId>> ignored_wait;
    // The host does not wait for this one.
    std::optional<StreamId> ignored_synchronize;
    // Nothing is done but what the host waits for.
    bool lazy = false;
    // Where it is told, if not null, that something was done which a device
    // does not bear: memory freed while there is work to do.
    absl::Status* misuse = nullptr;
  };

  explicit HostRuntime(const Options& options);

  // Of the work of `stream`. Work must not enqueue any.
  void Enqueue(StreamId stream, std::function<void()> work);

  // Of memory of the device, so far.
  int64_t allocations() const { return allocations_; }
  // Whether all the work of `stream` has been done.
  bool IsIdle(StreamId stream) { return At(stream).queue.empty(); }
  // From here on calls fail with this error, as they do on a broken device.
  void FailWith(absl::Status status) { failure_ = std::move(status); }

  absl::Status BindThread() override;
  absl::StatusOr<Event> CreateEvent() override;
  absl::StatusOr<Event> CreateTimedEvent() override { return CreateEvent(); }
  absl::Status Record(Event event, StreamId stream) override;
  absl::Status Wait(StreamId stream, Event event) override;
  absl::StatusOr<bool> Query(Event event) override;
  absl::Status Synchronize(Event event) override;
  absl::StatusOr<absl::Duration> Elapsed(Event begin, Event end) override;
  absl::StatusOr<float*> Allocate(int64_t size) override;
  void Free(float* memory) override;
  Memory GetMemory() override;
  absl::StatusOr<float*> AllocatePinned(int64_t size) override;
  void FreePinned(float* memory) override;
  absl::Status CopyIn(const float* host, int64_t size, float* device) override;
  absl::Status CopyOut(const float* device, int64_t size, float* host) override;

 private:
  // A place in a stream: so many items of it.
  struct Place {
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
  };

  Stream& At(StreamId stream) { return streams_[static_cast<int>(stream)]; }
  bool IsDone(const Place& place) {
    return At(place.stream).done >= place.items;
  }
  void EnqueueCopy(StreamId stream, const float* from, int64_t size, float* to);
  float* Make(int64_t size, int64_t device_bytes);

  // Does some of the work, perhaps none.
  void Dawdle();
  // Does one item. False when no stream can go on.
  bool Step();
  // Does what must be done before `place`, and no more. False when that cannot
  // be.
  bool Reach(const Place& place);
  void DoNext(Stream* stream);
  // Of an event there, which has happened.
  int64_t TimeOf(const Place& place);

  const Options options_;
  std::mt19937_64 random_;
  // Of 8 calls, how many do work. 0: none, and lazily.
  uint32_t eagerness_ = 0;
  std::array<Stream, kNumStreams> streams_;
  // The device's clock: items done.
  int64_t time_ = 0;
  // By event.
  std::vector<Place> events_;
  // With what was freed, so that whoever still uses it finds NaN there.
  std::vector<Allocation> made_;
  int64_t device_bytes_ = 0;
  int64_t allocations_ = 0;
  absl::Status failure_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_HOST_RUNTIME_H_
