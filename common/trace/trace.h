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

// What a process did when: spans on tracks, in memory until they are written as
// a file of Chrome's Trace Event Format, which Perfetto and chrome://tracing
// show.
//
// Whoever can be traced has a pointer to one, null where nothing is recorded:
// then a span costs a comparison. One that records on demand and does not,
// costs the reading of an atomic; otherwise a span takes about a microsecond.
//
// Thread-safe.
class Tracer {
 public:
  struct Options {
    // Spans kept: the first, on demand the newest. Others are counted and
    // dropped. One takes about 200 bytes, here and in the file.
    int64_t max_spans = 500'000;
    // Records between Begin and End alone, as for a trace of the whole cluster.
    // Otherwise from its construction on.
    bool on_demand = false;
    // Default: the machine's monotonic clock, so that traces of processes of
    // one machine have one time line.
    const Clock* clock = nullptr;
    // Of the file: the process in which its spans lie.
    int64_t process = 0;
    std::string process_name;
  };

  using TrackKind = TraceTrack::Kind;
  using Track = int;

  // Time in which an operation of a backend ran, and in which an RPC was under
  // way: of each the union of its spans, and the intersection of both. Where no
  // backend has run, the model's spans (kModel) stand for its operations.
  struct Overlap {
    absl::Duration compute;
    absl::Duration rpc;
    absl::Duration both;

    // Of the communication, what is hidden behind computation: both / rpc.
    // Absent without any.
    std::optional<double> hidden() const;
  };

  explicit Tracer(Options options);

  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  absl::Time Now() const { return clock_->Now(); }

  // Whether a span that is added is kept. Whoever would make one may ask first.
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  // In the file tracks stand in the order in which they were added.
  Track AddTrack(std::string name, TrackKind kind);
  void Add(Track track, TraceSpan span);

  // Of what the calling thread does. Made with its first span, or by this, with
  // a name of its own; a later name replaces an earlier one.
  void NameThread(std::string name);
  // Adds to that track.
  void AddHere(TraceSpan span);

  // On demand. Records from here on; what was recorded before is forgotten.
  void Begin();

  struct Recorded {
    // All, in the order in which they were added.
    std::vector<TraceTrack> tracks;
    // Spans that ended before this were dropped. Absent: none was.
    std::optional<absl::Time> complete_from;
  };
  // On demand. Records no more, and hands out the spans that had not ended at
  // `from` and had begun at `until`.
  Recorded End(absl::Time from, absl::Time until);

  Overlap overlap() const;
  int64_t dropped() const;

  // The file's content.
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
  // In the order in which they were added.
  std::deque<Stored> spans_ ABSL_GUARDED_BY(mutex_);
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  // On demand: when the last of them had ended.
  absl::Time dropped_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// What a thread does from the object's construction to its end, on the thread's
// track.
class ScopedTrace {
 public:
  // With a null `tracer` it does nothing. `name` must outlive it.
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

// A tracer with the file that it ends in, which is there, empty, from the
// beginning. Thread-safe.
class TraceFile {
 public:
  // Errors: INVALID_ARGUMENT, with the file's name, when it cannot be opened or
  // is another process'.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(
      const std::string& path, Tracer::Options options);
  ~TraceFile();

  Tracer* tracer() { return &tracer_; }

  // Writes what has been recorded so far. Once: later calls do nothing. Logs
  // what the trace shows, and what went wrong.
  void Finish();

 private:
  TraceFile(std::string path, std::FILE* file, Tracer::Options options)
      : path_(std::move(path)), tracer_(std::move(options)), file_(file) {}

  const std::string path_;
  Tracer tracer_;
  absl::Mutex mutex_;
  // Null once it is written.
  std::FILE* file_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_H_
