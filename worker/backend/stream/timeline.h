// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_TIMELINE_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_TIMELINE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/backend/stream/device_runtime.h"

namespace holdfast {

// Numbers the items of work of one stream, from 1, in the order in which they
// are enqueued. A caller waits for an item by its number. Events are recorded
// only when a caller waits, or when MarkHere says that one will.
//
// Thread-compatible, except that other threads may call Await for an item after
// which MarkHere has been called.
class Timeline {
 public:
  // `runtime` must outlive the timeline.
  Timeline(DeviceRuntime* runtime, StreamId stream)
      : runtime_(runtime), stream_(stream) {}

  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Returns the number of the item that the caller enqueues next.
  uint64_t Next() { return ++last_; }
  uint64_t last() const { return last_; }

  // Records an event after the last item, so that a later wait for that item
  // does not wait for what is enqueued after this call. Errors: the runtime's.
  absl::Status MarkHere();

  // Makes all work that is enqueued on `waiter`, another stream, after this
  // call wait until `item` is done.
  absl::Status LetWait(StreamId waiter, uint64_t item);
  // Returns whether `item` is done; if so, all items before it are done too.
  absl::StatusOr<bool> IsDone(uint64_t item);
  // Makes the host wait until `item` is done.
  absl::Status Await(uint64_t item);

 private:
  struct Mark {
    uint64_t item;
    DeviceRuntime::Event event;
  };

  // Returns the first mark at or after `item`, and makes one if there is none.
  // The mark is valid until another is made or passed.
  absl::StatusOr<Mark> MarkFor(uint64_t item)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes that all items up to the mark at `item` are done, so that the events
  // of this mark and of those before it can be reused.
  void Pass(uint64_t item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  DeviceRuntime* const runtime_;
  const StreamId stream_;
  // last_ and waited_ are used only by the thread that enqueues.
  uint64_t last_ = 0;
  // The last item that each stream has waited for, indexed by stream.
  std::array<uint64_t, kNumStreams> waited_ = {};
  // The last item that is known to be done. Written under mutex_, which reading
  // it does not need.
  std::atomic<uint64_t> done_ = 0;

  absl::Mutex mutex_;
  // The events that were recorded and not yet passed, each with the last item
  // before it, in ascending order.
  std::deque<Mark> marks_ ABSL_GUARDED_BY(mutex_);
  // Events of passed marks, each of which a thread may still be waiting for, so
  // that it must not be recorded yet.
  std::vector<DeviceRuntime::Event> passed_events_ ABSL_GUARDED_BY(mutex_);
  std::vector<DeviceRuntime::Event> spare_events_ ABSL_GUARDED_BY(mutex_);
  // The number of threads in Await that wait for an event.
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_TIMELINE_H_
