// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_TRACE_TRACE_H_
#define HOLDFAST_COMMON_TRACE_TRACE_H_

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/trace/trace_span.h"

namespace holdfast {

// Records what a process does and when: spans on tracks, kept in memory until
// they are written to a file in Chrome's Trace Event Format, which Perfetto and
// chrome://tracing show.
//
// Code that can be traced has a pointer to a tracer, which is null if nothing
// is recorded. A span costs a comparison if the pointer is null, the reading of
// an atomic if the tracer is on demand and not recording, and otherwise about a
// microsecond.
//
// Thread-safe.
class Tracer {
 public:
  struct Options {
    // The maximum number of spans kept: the first spans or, if on_demand, the
    // newest. Other spans are counted and dropped. A span takes about 200
    // bytes, in memory and in the file.
    int64_t max_spans = 500'000;
    // Whether to record only between Begin and End, as for a trace of the whole
    // cluster. If false, the tracer records from its construction on.
    bool on_demand = false;
    // The clock of the spans. If null, the machine's monotonic clock is used,
    // so that traces of processes of one machine have the same time line.
    const Clock* clock = nullptr;
    // The id and the name that the process has in the file.
    int64_t process = 0;
    std::string process_name;
  };

  using TrackKind = TraceTrack::Kind;
  using Track = int;

  // How long operations of a backend ran, how long RPCs were in progress (each
  // is the length of the union of their spans), and how long both at once. If
  // no backend has run, the model's spans (kModel) count as operations.
  struct Overlap {
    absl::Duration compute;
    absl::Duration rpc;
    absl::Duration both;

    // The fraction of communication that is hidden behind computation: both /
    // rpc. Absent if there was no communication.
    std::optional<double> hidden() const;
  };

  explicit Tracer(Options options);

  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  absl::Time Now() const { return clock_->Now(); }

  // Whether added spans are kept. Callers may check this before they make a
  // span.
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  // Adds a track. In the file, tracks are in the order in which they were
  // added.
  Track AddTrack(std::string name, TrackKind kind);
  void Add(Track track, TraceSpan span);

  // Names the track of the calling thread, which is made by this call or with
  // the thread's first span; a later name replaces an earlier one.
  void NameThread(std::string name);
  // Adds a span to the calling thread's track.
  void AddHere(TraceSpan span);

  // Records from here on, and discards earlier spans. Only if on_demand.
  void Begin();

  struct Recorded {
    // All tracks, in the order in which they were added.
    std::vector<TraceTrack> tracks;
    // The time before which the recording may be incomplete, because spans that
    // ended before it may have been dropped; absent if none was dropped.
    std::optional<absl::Time> complete_from;
  };
  // Stops recording, and returns the spans that overlap [from, until]. Only if
  // on_demand.
  Recorded End(absl::Time from, absl::Time until);

  Overlap overlap() const;
  int64_t dropped() const;

  // What has been recorded so far, as the contents of a file.
  std::string ToJson() const;

 private:
  struct Place {
    std::string name;
    TrackKind kind;
  };
  struct Stored {
    Track track;
    TraceSpan span;
  };

  Track TrackHere() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddTo(Track track, TraceSpan span) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Overlap ComputeOverlap() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const SteadyClock steady_;
  const Clock* const clock_;
  std::atomic<bool> recording_;

  mutable absl::Mutex mutex_;
  std::vector<Place> tracks_ ABSL_GUARDED_BY(mutex_);
  std::map<std::thread::id, Track> threads_ ABSL_GUARDED_BY(mutex_);
  // The spans in the order in which they were added.
  std::deque<Stored> spans_ ABSL_GUARDED_BY(mutex_);
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  // The latest end of a dropped span. Only if on_demand.
  absl::Time dropped_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// A span from the object's construction to its destruction, on the thread's
// track.
class ScopedTrace {
 public:
  // The object does nothing if `tracer` is null. `name` must outlive the
  // object.
  ScopedTrace(Tracer* tracer, TraceKind kind, absl::string_view name)
      : tracer_(tracer != nullptr && tracer->recording() ? tracer : nullptr),
        kind_(kind),
        name_(name) {
    if (tracer_ != nullptr) begin_ = tracer_->Now();
  }
  ~ScopedTrace() {
    if (tracer_ != nullptr) Add();
  }

  ScopedTrace(const ScopedTrace&) = delete;
  ScopedTrace& operator=(const ScopedTrace&) = delete;

  // `name` must outlive the tracer.
  void Set(const char* name, int64_t value) {
    if (tracer_ != nullptr) args_.emplace_back(name, value);
  }

 private:
  void Add();

  Tracer* const tracer_;
  const TraceKind kind_;
  const absl::string_view name_;
  absl::Time begin_;
  TraceSpan::Args args_;
};

// A tracer with its output file, which is created, empty, together with it.
// Thread-safe.
class TraceFile {
 public:
  // Errors: INVALID_ARGUMENT, with the file's name, when it cannot be opened or
  // another process is writing it.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(
      const std::string& path, Tracer::Options options);
  ~TraceFile();

  Tracer* tracer() { return &tracer_; }

  // Writes what has been recorded so far, and logs a summary of the trace, or
  // an error. Later calls do nothing.
  void Finish();

 private:
  TraceFile(std::string path, std::FILE* file, Tracer::Options options)
      : path_(std::move(path)), tracer_(std::move(options)), file_(file) {}

  const std::string path_;
  Tracer tracer_;
  absl::Mutex mutex_;
  // Null once the trace is written.
  std::FILE* file_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_H_
