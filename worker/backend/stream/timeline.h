#ifndef HOLDFAST_WORKER_BACKEND_STREAM_TIMELINE_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_TIMELINE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/stream/device_runtime.h"

namespace holdfast {

// The work of one stream, counted: item 1 is the first that was enqueued. What
// has to wait names the item that it waits for, and events are recorded only
// where somebody waits, or where MarkHere says that somebody will.
//
// Thread-compatible.
class Timeline {
 public:
  // `runtime` must outlive it.
  Timeline(DeviceRuntime* runtime, StreamId stream)
      : runtime_(runtime), stream_(stream) {}

  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // The number of the item that the caller enqueues next.
  uint64_t Next() { return ++last_; }
  uint64_t last() const { return last_; }

  // Records an event behind the last item, so that a later wait for it does not
  // wait for what is enqueued after this. Errors: the runtime's.
  absl::Status MarkHere();

  // Has `waiter`, another stream, do nothing more before `item` is done.
  absl::Status LetWait(StreamId waiter, uint64_t item);
  // Whether `item` is done; then so are all before it.
  absl::StatusOr<bool> IsDone(uint64_t item);
  // Waits on the host until it is.
  absl::Status Await(uint64_t item);

 private:
  struct Mark {
    uint64_t item;
    DeviceRuntime::Event event;
  };

  // The first mark at or behind `item`, which is made where there is none.
  // Valid until another is made or passed.
  absl::StatusOr<Mark> MarkFor(uint64_t item);
  // All items up to the mark are done; its event, and those before it, may be
  // recorded again.
  void Pass(uint64_t item);

  DeviceRuntime* const runtime_;
  const StreamId stream_;
  uint64_t last_ = 0;
  // Items known to be done.
  uint64_t done_ = 0;
  // By stream: items that it has waited for.
  std::array<uint64_t, kNumStreams> waited_ = {};
  // In order; each behind items that are not known to be done.
  std::deque<Mark> marks_;
  std::vector<DeviceRuntime::Event> spare_events_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_TIMELINE_H_
