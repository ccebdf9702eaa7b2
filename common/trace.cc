#include "common/trace.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

absl::string_view KindName(TraceKind kind) {
  switch (kind) {
    case TraceKind::kStep:
      return "step";
    case TraceKind::kModel:
      return "model";
    case TraceKind::kCompute:
      return "compute";
    case TraceKind::kCopy:
      return "copy";
    case TraceKind::kWait:
      return "wait";
    case TraceKind::kRpc:
      return "rpc";
  }
  return "";
}

// A string of JSON (RFC 8259). Bytes that are no ASCII are left as they are.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  return quoted;
}

// In the format's unit.
std::string Microseconds(absl::Duration duration) {
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(duration);
  return absl::StrFormat("%d.%03d", nanoseconds / 1000, nanoseconds % 1000);
}

// By their beginnings; of those that begin together the longest first, within
// which the others lie.
std::vector<const TraceSpan*> InOrder(const std::vector<TraceSpan>& spans) {
  std::vector<const TraceSpan*> order;
  order.reserve(spans.size());
  for (const TraceSpan& span : spans) order.push_back(&span);
  // A span is added when it ends, so of equals the later one is the outer one.
  std::reverse(order.begin(), order.end());
  std::stable_sort(
      order.begin(), order.end(), [](const TraceSpan* a, const TraceSpan* b) {
        return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
      });
  return order;
}

// Spreads spans over lanes, in each of which they follow one another or, with
// `nested`, lie within one another. The lane of each, in their order.
std::vector<int> Lanes(const std::vector<const TraceSpan*>& spans,
                       bool nested) {
  // By lane: the ends of spans that are not over.
  std::vector<std::vector<absl::Time>> open;
  std::vector<int> lanes;
  lanes.reserve(spans.size());
  for (const TraceSpan* const span : spans) {
    size_t lane = 0;
    for (; lane < open.size(); ++lane) {
      std::vector<absl::Time>& ends = open[lane];
      while (!ends.empty() && ends.back() <= span->begin) ends.pop_back();
      if (ends.empty() || (nested && span->end <= ends.back())) break;
    }
    if (lane == open.size()) open.emplace_back();
    open[lane].push_back(span->end);
    lanes.push_back(static_cast<int>(lane));
  }
  return lanes;
}

std::string Event(const TraceSpan& span, int64_t process, int thread) {
  std::vector<std::string> args;
  for (const auto& [name, value] : span.args) {
    args.push_back(absl::StrCat(Quoted(name), ":", value));
  }
  if (!span.error.empty()) {
    args.push_back(absl::StrCat("\"error\":", Quoted(span.error)));
  }
  return absl::StrCat(
      "{\"ph\":\"X\",\"name\":", Quoted(span.name), ",\"cat\":\"",
      KindName(span.kind),
      "\",\"ts\":", Microseconds(span.begin - absl::UnixEpoch()),
      ",\"dur\":", Microseconds(span.end - span.begin), ",\"pid\":", process,
      ",\"tid\":", thread, ",\"args\":{", absl::StrJoin(args, ","), "}}");
}

// Says something about a process or thread.
std::string Metadata(absl::string_view what, int64_t process, int thread,
                     const std::string& args) {
  return absl::StrCat("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", process,
                      ",\"tid\":", thread, ",\"args\":{", args, "}}");
}

struct Stretch {
  absl::Time begin;
  absl::Time end;
};

// What any of the stretches covers, in order.
std::vector<Stretch> Union(std::vector<Stretch> stretches) {
  std::sort(
      stretches.begin(), stretches.end(),
      [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  std::vector<Stretch> joined;
  for (const Stretch& stretch : stretches) {
    if (joined.empty() || stretch.begin > joined.back().end) {
      joined.push_back(stretch);
    } else {
      joined.back().end = std::max(joined.back().end, stretch.end);
    }
  }
  return joined;
}

absl::Duration Length(const std::vector<Stretch>& stretches) {
  absl::Duration length;
  for (const Stretch& stretch : stretches)
    length += stretch.end - stretch.begin;
  return length;
}

// Of two that each are in order, what both cover.
absl::Duration CommonLength(const std::vector<Stretch>& a,
                            const std::vector<Stretch>& b) {
  absl::Duration length;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const absl::Time begin = std::max(a[i].begin, b[j].begin);
    const absl::Time end = std::min(a[i].end, b[j].end);
    if (begin < end) length += end - begin;
    a[i].end < b[j].end ? ++i : ++j;
  }
  return length;
}

// Of a thread that nobody has named to the tracer.
std::string NameOfThisThread() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return absl::StrCat("thread ", name);
}

}  // namespace

std::optional<double> Tracer::Overlap::hidden() const {
  if (rpc <= absl::ZeroDuration()) return std::nullopt;
  return absl::FDivDuration(both, rpc);
}

Tracer::Tracer(Options options)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? options_.clock : &steady_),
      began_(clock_->Now()) {}

Tracer::Track Tracer::AddTrack(std::string name, TrackKind kind) {
  absl::MutexLock lock(&mutex_);
  tracks_.push_back({std::move(name), kind, {}});
  return static_cast<Track>(tracks_.size()) - 1;
}

void Tracer::Add(Track track, TraceSpan span) {
  absl::MutexLock lock(&mutex_);
  AddTo(track, std::move(span));
}

void Tracer::NameThread(std::string name) {
  absl::MutexLock lock(&mutex_);
  tracks_[TrackHere()].name = std::move(name);
}

void Tracer::AddHere(TraceSpan span) {
  absl::MutexLock lock(&mutex_);
  AddTo(TrackHere(), std::move(span));
}

Tracer::Track Tracer::TrackHere() {
  const auto [found, is_new] = threads_.try_emplace(
      std::this_thread::get_id(), static_cast<Track>(tracks_.size()));
  if (is_new) tracks_.push_back({NameOfThisThread(), TrackKind::kNested, {}});
  return found->second;
}

void Tracer::AddTo(Track track, TraceSpan span) {
  if (spans_ == options_.max_spans) {
    LOG_IF(WARNING, dropped_ == 0)
        << "the trace is full: it has " << spans_
        << " spans, and what comes is not recorded any more";
    ++dropped_;
    return;
  }
  ++spans_;
  span.end = std::max(span.begin, span.end);
  tracks_[track].spans.push_back(std::move(span));
}

Tracer::Overlap Tracer::overlap() const {
  absl::MutexLock lock(&mutex_);
  return ComputeOverlap();
}

int64_t Tracer::dropped() const {
  absl::MutexLock lock(&mutex_);
  return dropped_;
}

Tracer::Overlap Tracer::ComputeOverlap() const {
  std::vector<Stretch> compute, model, rpc;
  for (const Place& track : tracks_) {
    for (const TraceSpan& span : track.spans) {
      const Stretch stretch = {span.begin, span.end};
      if (span.kind == TraceKind::kCompute) compute.push_back(stretch);
      if (span.kind == TraceKind::kModel) model.push_back(stretch);
      if (span.kind == TraceKind::kRpc) rpc.push_back(stretch);
    }
  }
  compute = Union(std::move(compute.empty() ? model : compute));
  rpc = Union(std::move(rpc));
  return {Length(compute), Length(rpc), CommonLength(compute, rpc)};
}

std::string Tracer::ToJson() const {
  absl::MutexLock lock(&mutex_);
  const int64_t process = options_.process;
  std::string json = absl::StrCat(
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n",
      Metadata("process_name", process, 0,
               absl::StrCat("\"name\":", Quoted(options_.process_name))));
  int thread = 0;
  for (const Place& track : tracks_) {
    const std::vector<const TraceSpan*> spans = InOrder(track.spans);
    const std::vector<int> lanes =
        Lanes(spans, track.kind == TrackKind::kNested);
    const int num_lanes =
        lanes.empty() ? 0 : *std::max_element(lanes.begin(), lanes.end()) + 1;
    for (int lane = 0; lane < num_lanes; ++lane) {
      const int id = thread + 1 + lane;
      absl::StrAppend(&json, ",\n",
                      Metadata("thread_name", process, id,
                               absl::StrCat("\"name\":", Quoted(track.name))),
                      ",\n",
                      Metadata("thread_sort_index", process, id,
                               absl::StrCat("\"sort_index\":", id)));
    }
    for (size_t i = 0; i < spans.size(); ++i) {
      absl::StrAppend(&json, ",\n",
                      Event(*spans[i], process, thread + 1 + lanes[i]));
    }
    thread += num_lanes;
  }
  const Overlap overlap = ComputeOverlap();
  absl::StrAppendFormat(
      &json,
      "\n],\"otherData\":{\"spans_dropped\":%d,\"compute_seconds\":%.6f,"
      "\"rpc_seconds\":%.6f,\"rpc_behind_compute_seconds\":%.6f",
      dropped_, absl::ToDoubleSeconds(overlap.compute),
      absl::ToDoubleSeconds(overlap.rpc), absl::ToDoubleSeconds(overlap.both));
  if (const std::optional<double> hidden = overlap.hidden()) {
    absl::StrAppendFormat(&json, ",\"communication_hidden\":%.4f", *hidden);
  }
  absl::StrAppend(&json, "}}\n");
  return json;
}

void ScopedTrace::Add() {
  TraceSpan span;
  span.kind = kind_;
  span.name = std::string(name_);
  span.begin = begin_;
  span.end = tracer_->Now();
  span.args = std::move(args_);
  tracer_->AddHere(std::move(span));
}

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(
    const std::string& path, Tracer::Options options) {
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  // Not yet emptied: another process may be at work on it.
  std::FILE* const file = descriptor < 0 ? nullptr : fdopen(descriptor, "w");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    std::fclose(file);
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": another process does"));
  }
  // Of what is no regular file, as /dev/stderr, there is nothing to empty.
  if (ftruncate(descriptor, 0) != 0 && errno != EINVAL) {
    LOG(WARNING) << "cannot empty " << path << ": " << std::strerror(errno);
  }
  return std::unique_ptr<TraceFile>(
      new TraceFile(path, file, std::move(options)));
}

TraceFile::~TraceFile() { Finish(); }

void TraceFile::Finish() {
  absl::MutexLock lock(&mutex_);
  if (file_ == nullptr) return;
  const std::string json = tracer_.ToJson();
  const bool written =
      std::fwrite(json.data(), 1, json.size(), file_) == json.size();
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  if (!written || !closed) {
    LOG(ERROR) << "cannot write the trace to " << path_ << ": "
               << std::strerror(errno);
    return;
  }
  const Tracer::Overlap overlap = tracer_.overlap();
  const std::optional<double> hidden = overlap.hidden();
  LOG(INFO) << "the trace is in " << path_ << "; computed for "
            << absl::FormatDuration(overlap.compute) << ", RPCs for "
            << absl::FormatDuration(overlap.rpc)
            << (hidden.has_value()
                    ? absl::StrFormat(", of which %.1f %% behind computation",
                                      100 * *hidden)
                    : "");
}

}  // namespace holdfast
