// SPDX-License-Identifier: Apache-2.0
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

// The work of one stream, in numbered items: item 1 was enqueued first. Waiters
// name the item that they wait for, and events are recorded only when there is
// a waiter, or when MarkHere announces one.
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

  // Records an event after the last item, so that a later wait for that item
  // does not wait for what is enqueued after this call. Errors: the runtime's.
  absl::Status MarkHere();

  // Makes later work of `waiter`, another stream, wait until `item` is done.
  absl::Status LetWait(StreamId waiter, uint64_t item);
  // Whether `item` is done; if so, all items before it are done too.
  absl::StatusOr<bool> IsDone(uint64_t item);
  // Waits on the host until `item` is done.
  absl::Status Await(uint64_t item);

 private:
  struct Mark {
    uint64_t item;
    DeviceRuntime::Event event;
  };

  // The first mark at or after `item`; made if there is none. Valid until
  // another mark is made or passed.
  absl::StatusOr<Mark> MarkFor(uint64_t item);
  // Notes that all items up to the mark at `item` are done; the mark's event,
  // and those before it, can be reused.
  void Pass(uint64_t item);

  DeviceRuntime* const runtime_;
  const StreamId stream_;
  uint64_t last_ = 0;
  // The last item that is known to be done.
  uint64_t done_ = 0;
  // The last item that each stream has waited for, indexed by stream.
  std::array<uint64_t, kNumStreams> waited_ = {};
  // In order; each is after items that are not known to be done.
  std::deque<Mark> marks_;
  std::vector<DeviceRuntime::Event> spare_events_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_TIMELINE_H_
