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

// Records what a device's streams do, by its own clock, as spans on the time
// line of the host: a track for each stream, whose spans follow one another.
//
// The clocks meet at an anchor: an event that the host waits for while the
// device rests. It is set anew now and then, as the clocks drift apart; they
// agree within the time that it takes the host to notice an event, some 10
// microseconds.
//
// Thread-compatible.
class DeviceTrace {
 public:
  // `runtime` and `tracer` must outlive it. `device` is its name: "cuda:0".
  DeviceTrace(DeviceRuntime* runtime, Tracer* tracer,
              const std::string& device);

  // What is enqueued on `stream` from Begin to End is a span. Copies have
  // bytes. `name` must outlive the trace. Errors: the runtime's.
  absl::Status Begin(StreamId stream);
  absl::Status End(StreamId stream, const char* name, int64_t bytes);

  // Gives the tracer the spans that are over. To be called when the device
  // rests. Errors: the runtime's.
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
    // Of the span that has begun.
    Event begin = 0;
    std::deque<Pending> pending;
    // Where the last span has ended.
    absl::Time end = absl::InfinitePast();
  };
  struct Anchor {
    Event event;
    absl::Time time;
  };

  absl::StatusOr<Event> RecordOn(StreamId stream);
  // Of an event that has happened, on the host's time line.
  absl::StatusOr<absl::Time> TimeOf(Event event);
  absl::Status SetAnchor();
  // Gives the tracer a stream's spans that are over.
  absl::Status CollectFrom(Stream* stream);

  DeviceRuntime* const runtime_;
  Tracer* const tracer_;
  std::array<Stream, kNumStreams> streams_;
  std::optional<Anchor> anchor_;
  std::vector<Event> spare_events_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_DEVICE_TRACE_H_
