// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/device_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// How often the anchor is renewed. In this time a good quartz drifts by 20
// microseconds, and the device's times, which are milliseconds in float32,
// still resolve 0.1 microseconds.
constexpr absl::Duration kAnchorEvery = absl::Seconds(1);

// The number of times that SetAnchor tries. The try in which the host was
// quickest counts.
constexpr int kTries = 3;

// The maximum number of a stream's spans that wait for Collect; beyond it, the
// spans that have ended are collected earlier.
constexpr size_t kMaxPending = 1024;

constexpr const char* kStreamNames[kNumStreams] = {"compute", "copies in",
                                                   "copies out"};

}  // namespace

DeviceTrace::DeviceTrace(DeviceRuntime* runtime, Tracer* tracer,
                         const std::string& device)
    : runtime_(runtime), tracer_(tracer) {
  for (int i = 0; i < kNumStreams; ++i) {
    streams_[i].track = tracer->AddTrack(
        absl::StrCat(device, " ", kStreamNames[i]), Tracer::TrackKind::kNested);
  }
}

absl::Status DeviceTrace::Begin(StreamId stream) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto event, RecordOn(stream));
  streams_[static_cast<int>(stream)].begin = event;
  return absl::OkStatus();
}

absl::Status DeviceTrace::End(StreamId stream, const char* name,
                              int64_t bytes) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto event, RecordOn(stream));
  Stream& ended = streams_[static_cast<int>(stream)];
  ended.pending.push_back({ended.begin, event, name, bytes});
  return ended.pending.size() > kMaxPending ? CollectFrom(&ended)
                                            : absl::OkStatus();
}

absl::Status DeviceTrace::Collect() {
  bool all = true;
  for (Stream& stream : streams_) {
    HOLDFAST_RETURN_IF_ERROR(CollectFrom(&stream));
    all = all && stream.pending.empty();
  }
  const bool is_due =
      !anchor_.has_value() || tracer_->Now() - anchor_->time >= kAnchorEvery;
  return all && is_due ? SetAnchor() : absl::OkStatus();
}

absl::StatusOr<DeviceTrace::Event> DeviceTrace::RecordOn(StreamId stream) {
  if (spare_events_.empty()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto event, runtime_->CreateTimedEvent());
    spare_events_.push_back(event);
  }
  const Event event = spare_events_.back();
  HOLDFAST_RETURN_IF_ERROR(runtime_->Record(event, stream));
  spare_events_.pop_back();
  return event;
}

absl::StatusOr<absl::Time> DeviceTrace::TimeOf(Event event) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto after,
                            runtime_->Elapsed(anchor_->event, event));
  return anchor_->time + after;
}

absl::Status DeviceTrace::SetAnchor() {
  absl::Duration quickest = absl::InfiniteDuration();
  for (int i = 0; i < kTries; ++i) {
    const absl::Time before = tracer_->Now();
    HOLDFAST_ASSIGN_OR_RETURN(const auto event, RecordOn(StreamId::kCompute));
    HOLDFAST_RETURN_IF_ERROR(runtime_->Synchronize(event));
    const absl::Duration took = tracer_->Now() - before;
    if (took < quickest) {
      quickest = took;
      if (anchor_.has_value()) spare_events_.push_back(anchor_->event);
      anchor_ = {event, before + took / 2};
    } else {
      spare_events_.push_back(event);
    }
  }
  return absl::OkStatus();
}

absl::Status DeviceTrace::CollectFrom(Stream* stream) {
  const bool copies = stream != &streams_[static_cast<int>(StreamId::kCompute)];
  while (!stream->pending.empty()) {
    const Pending& next = stream->pending.front();
    HOLDFAST_ASSIGN_OR_RETURN(const auto over, runtime_->Query(next.end));
    if (!over) break;
    HOLDFAST_ASSIGN_OR_RETURN(const auto begin, TimeOf(next.begin));
    HOLDFAST_ASSIGN_OR_RETURN(const auto end, TimeOf(next.end));
    TraceSpan span;
    span.kind = copies ? TraceKind::kCopy : TraceKind::kCompute;
    span.name = next.name;
    // With a new anchor, time may seem to go backwards.
    span.begin = std::max(stream->end, begin);
    span.end = std::max(span.begin, end);
    if (copies) span.args.emplace_back("bytes", next.bytes);
    stream->end = span.end;
    tracer_->Add(stream->track, std::move(span));
    spare_events_.push_back(next.begin);
    spare_events_.push_back(next.end);
    stream->pending.pop_front();
  }
  return absl::OkStatus();
}

}  // namespace holdfast
