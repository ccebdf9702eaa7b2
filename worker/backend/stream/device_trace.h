// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_TRACE_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_TRACE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/trace/trace.h"
#include "worker/backend/stream/device_runtime.h"

namespace holdfast {

// Records the work of a device's streams, timed by the device's own clock, as
// spans on the host's timeline. Each stream has a track, whose spans do not
// overlap.
//
// The two clocks are aligned at an anchor: an event for which the host waits
// while the device is idle, so that the time of the event is known by both. The
// anchor is renewed from time to time, because the clocks drift apart. The
// alignment is as exact as the time that the host takes to notice an event,
// some 10 microseconds.
//
// Thread-compatible.
class DeviceTrace {
 public:
  // `runtime` and `tracer` must outlive the trace. `device` is the device's
  // name, such as "cuda:0".
  DeviceTrace(DeviceRuntime* runtime, Tracer* tracer,
              const std::string& device);

  // Begin and End enclose work that is enqueued on `stream`, which becomes one
  // span. `bytes` is the size of a copy, and unused for other work. `name` must
  // outlive the trace. Errors: the runtime's.
  absl::Status Begin(StreamId stream);
  absl::Status End(StreamId stream, const char* name, int64_t bytes);

  // Passes the spans that have ended to the tracer. Must be called when the
  // device is idle. Errors: the runtime's.
  absl::Status Collect();

 private:
  using Event = DeviceRuntime::Event;

  struct Pending {
    Event begin;
    Event end;
    const char* name;
    int64_t bytes;
  };
  struct Stream {
    Tracer::Track track;
    // The event at the beginning of the span between Begin and End.
    Event begin = 0;
    std::deque<Pending> pending;
    // When the last span that was passed to the tracer ended.
    absl::Time end = absl::InfinitePast();
  };
  struct Anchor {
    Event event;
    absl::Time time;
  };

  absl::StatusOr<Event> RecordOn(StreamId stream);
  // Returns when `event`, which must have happened, happened on the host's
  // timeline.
  absl::StatusOr<absl::Time> TimeOf(Event event);
  absl::Status SetAnchor();
  // Passes the stream's spans that have ended to the tracer.
  absl::Status CollectFrom(Stream* stream);

  DeviceRuntime* const runtime_;
  Tracer* const tracer_;
  std::array<Stream, kNumStreams> streams_;
  std::optional<Anchor> anchor_;
  std::vector<Event> spare_events_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_TRACE_H_
