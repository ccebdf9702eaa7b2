// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/trace/trace_json.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

struct Range {
  absl::Time begin;
  absl::Time end;
};

// The union of the ranges, in order.
std::vector<Range> Union(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> joined;
  for (const Range& range : ranges) {
    if (joined.empty() || range.begin > joined.back().end) {
      joined.push_back(range);
    } else {
      joined.back().end = std::max(joined.back().end, range.end);
    }
  }
  return joined;
}

absl::Duration Length(const std::vector<Range>& ranges) {
  absl::Duration length;
  for (const Range& range : ranges) length += range.end - range.begin;
  return length;
}

// The length of the intersection of two lists of ranges, each in order.
absl::Duration CommonLength(const std::vector<Range>& a,
                            const std::vector<Range>& b) {
  absl::Duration length;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const absl::Time begin = std::max(a[i].begin, b[j].begin);
    const absl::Time end = std::min(a[i].end, b[j].end);
    if (begin < end) length += end - begin;
    a[i].end < b[j].end ? ++i : ++j;
  }
  return length;
}

// The name of a thread for which NameThread was not called.
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
      recording_(!options_.on_demand) {}

Tracer::Track Tracer::AddTrack(std::string name, TrackKind kind) {
  absl::MutexLock lock(&mutex_);
  tracks_.push_back({std::move(name), kind});
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
  if (is_new) tracks_.push_back({NameOfThisThread(), TrackKind::kNested});
  return found->second;
}

void Tracer::AddTo(Track track, TraceSpan span) {
  if (!recording()) return;
  span.end = std::max(span.begin, span.end);
  if (static_cast<int64_t>(spans_.size()) == options_.max_spans) {
    ++dropped_;
    if (!options_.on_demand) {
      LOG_IF(WARNING, dropped_ == 1)
          << "the trace is full: it has " << spans_.size()
          << " spans, and later ones are not recorded";
      return;
    }
    dropped_until_ = std::max(dropped_until_, spans_.front().span.end);
    spans_.pop_front();
  }
  spans_.push_back({track, std::move(span)});
}

void Tracer::Begin() {
  absl::MutexLock lock(&mutex_);
  spans_.clear();
  dropped_ = 0;
  dropped_until_ = absl::InfinitePast();
  recording_.store(true, std::memory_order_relaxed);
}

Tracer::Recorded Tracer::End(absl::Time from, absl::Time until) {
  std::deque<Stored> spans;
  Recorded recorded;
  {
    absl::MutexLock lock(&mutex_);
    recording_.store(false, std::memory_order_relaxed);
    spans.swap(spans_);
    for (const Place& place : tracks_) {
      recorded.tracks.push_back({place.name, place.kind, {}});
    }
    if (dropped_until_ > from) recorded.complete_from = dropped_until_;
  }
  for (Stored& stored : spans) {
    if (stored.span.end < from || stored.span.begin > until) continue;
    recorded.tracks[stored.track].spans.push_back(std::move(stored.span));
  }
  return recorded;
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
  std::vector<Range> compute, model, rpc;
  for (const Stored& stored : spans_) {
    const TraceSpan& span = stored.span;
    const Range range = {span.begin, span.end};
    if (span.kind == TraceKind::kCompute) compute.push_back(range);
    if (span.kind == TraceKind::kModel) model.push_back(range);
    if (span.kind == TraceKind::kRpc) rpc.push_back(range);
  }
  compute = Union(std::move(compute.empty() ? model : compute));
  rpc = Union(std::move(rpc));
  return {Length(compute), Length(rpc), CommonLength(compute, rpc)};
}

std::string Tracer::ToJson() const {
  absl::MutexLock lock(&mutex_);
  TraceProcess process;
  process.id = options_.process;
  process.name = options_.process_name;
  for (const Place& place : tracks_) {
    process.rows.push_back({place.name, place.kind, {}});
  }
  for (const Stored& stored : spans_) {
    process.rows[stored.track].spans.push_back(&stored.span);
  }
  const Overlap overlap = ComputeOverlap();
  std::string other_data = absl::StrFormat(
      "\"spans_dropped\":%d,\"compute_seconds\":%.6f,"
      "\"rpc_seconds\":%.6f,\"rpc_behind_compute_seconds\":%.6f",
      dropped_, absl::ToDoubleSeconds(overlap.compute),
      absl::ToDoubleSeconds(overlap.rpc), absl::ToDoubleSeconds(overlap.both));
  if (const std::optional<double> hidden = overlap.hidden()) {
    absl::StrAppendFormat(&other_data, ",\"communication_hidden\":%.4f",
                          *hidden);
  }
  return ToChromeTrace({process}, {}, other_data);
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
  // Not truncated yet, because another process may be writing it.
  std::FILE* const file = descriptor < 0 ? nullptr : fdopen(descriptor, "w");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    std::fclose(file);
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": another process is writing it"));
  }
  // Files that are not regular, such as /dev/stderr, cannot be truncated.
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
  LOG(INFO) << "the trace is in " << path_
            << "; computation: " << absl::FormatDuration(overlap.compute)
            << ", RPCs: " << absl::FormatDuration(overlap.rpc)
            << (hidden.has_value()
                    ? absl::StrFormat(
                          ", of which %.1f %% was hidden behind computation",
                          100 * *hidden)
                    : "");
}

}  // namespace holdfast
