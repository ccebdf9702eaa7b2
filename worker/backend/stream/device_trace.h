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

// Records what a device's streams do, timed by the device's own clock, as spans
// on the host's timeline: one track for each stream, whose spans do not
// overlap.
//
// The clocks are aligned at an anchor: an event that the host waits for while
// the device is idle. It is renewed from time to time, because the clocks drift
// apart. They agree within the time that the host takes to notice an event,
// some 10 microseconds.
//
// Thread-compatible.
class DeviceTrace {
 public:
  // `runtime` and `tracer` must outlive it. `device` is the device's name, such
  // as "cuda:0".
  DeviceTrace(DeviceRuntime* runtime, Tracer* tracer,
              const std::string& device);

  // The work that is enqueued on `stream` from Begin to End becomes a span.
  // `bytes` is the size of a copy. `name` must outlive the trace. Errors: the
  // runtime's.
  absl::Status Begin(StreamId stream);
  absl::Status End(StreamId stream, const char* name, int64_t bytes);

  // Gives the tracer the spans that have ended. Must be called when the device
  // is idle. Errors: the runtime's.
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
    // The beginning of the span that is open.
    Event begin = 0;
    std::deque<Pending> pending;
    // The end of the last span.
    absl::Time end = absl::InfinitePast();
  };
  struct Anchor {
    Event event;
    absl::Time time;
  };

  absl::StatusOr<Event> RecordOn(StreamId stream);
  // The time of an event that has happened, on the host's timeline.
  absl::StatusOr<absl::Time> TimeOf(Event event);
  absl::Status SetAnchor();
  // Gives the tracer a stream's spans that have ended.
  absl::Status CollectFrom(Stream* stream);

  DeviceRuntime* const runtime_;
  Tracer* const tracer_;
  std::array<Stream, kNumStreams> streams_;
  std::optional<Anchor> anchor_;
  std::vector<Event> spare_events_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_TRACE_H_
