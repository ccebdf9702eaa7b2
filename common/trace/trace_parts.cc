// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_parts.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace holdfast {
namespace {

// These must agree with the rules in proto/trace.proto.
constexpr int kSpansPerPart = 1024;
constexpr int kMostTracks = 1024;
constexpr size_t kMostArgs = 8;
constexpr size_t kMostNameBytes = 64;
constexpr size_t kMostErrorBytes = 256;

// Errors may contain text from other programs.
std::string Plain(absl::string_view text, size_t most) {
  std::string plain(text.substr(0, most));
  for (char& c : plain) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return plain;
}

proto::TraceSpan::Kind ToProto(TraceKind kind) {
  switch (kind) {
    case TraceKind::kStep:
      return proto::TraceSpan::STEP;
    case TraceKind::kModel:
      return proto::TraceSpan::MODEL;
    case TraceKind::kCompute:
      return proto::TraceSpan::COMPUTE;
    case TraceKind::kCopy:
      return proto::TraceSpan::COPY;
    case TraceKind::kWait:
      return proto::TraceSpan::WAIT;
    case TraceKind::kRpc:
      return proto::TraceSpan::RPC;
  }
  return proto::TraceSpan::STEP;
}

void Fill(const TraceSpan& from, uint32_t track, proto::TraceSpan* span) {
  span->set_kind(ToProto(from.kind));
  span->set_track(track);
  span->set_name(from.name.empty() ? "-" : Plain(from.name, kMostNameBytes));
  span->set_begin_ns(ToTraceNanos(from.begin));
  span->set_duration_ns(ToTraceNanos(from.end) - span->begin_ns());
  for (size_t i = 0; i < std::min(from.args.size(), kMostArgs); ++i) {
    proto::TraceArg& arg = *span->add_args();
    arg.set_name(from.args[i].first);
    arg.set_value(from.args[i].second);
  }
  span->set_error(Plain(from.error, kMostErrorBytes));
}

}  // namespace

// No span is recorded before the clock's epoch.
int64_t ToTraceNanos(absl::Time time) {
  return std::max<int64_t>(absl::ToUnixNanos(time), 0);
}

absl::Time FromTraceNanos(int64_t nanoseconds) {
  return absl::FromUnixNanos(nanoseconds);
}

TraceKind FromProto(proto::TraceSpan::Kind kind) {
  switch (kind) {
    case proto::TraceSpan::MODEL:
      return TraceKind::kModel;
    case proto::TraceSpan::COMPUTE:
      return TraceKind::kCompute;
    case proto::TraceSpan::COPY:
      return TraceKind::kCopy;
    case proto::TraceSpan::WAIT:
      return TraceKind::kWait;
    case proto::TraceSpan::RPC:
      return TraceKind::kRpc;
    default:
      return TraceKind::kStep;
  }
}

std::vector<proto::TracePart> ToTraceParts(
    const std::vector<TraceTrack>& tracks, const ClockReading& clock,
    std::optional<absl::Time> complete_from) {
  std::vector<proto::TracePart> parts(1);
  parts[0].set_clock_offset_ns(absl::ToInt64Nanoseconds(clock.offset));
  parts[0].set_clock_error_ns(absl::ToInt64Nanoseconds(clock.error));
  if (complete_from.has_value()) {
    parts[0].set_complete_from_ns(ToTraceNanos(*complete_from));
  }
  int64_t spans = 0;
  for (const TraceTrack& track : tracks) {
    if (track.spans.empty() || parts[0].tracks_size() == kMostTracks) continue;
    const uint32_t index = parts[0].tracks_size();
    proto::TraceTrack& told = *parts[0].add_tracks();
    told.set_name(track.name.empty() ? "-" : Plain(track.name, kMostNameBytes));
    told.set_overlapping(track.kind == TraceTrack::Kind::kOverlapping);
    for (const TraceSpan& span : track.spans) {
      if (spans == kMaxClusterTraceSpans) break;
      ++spans;
      if (parts.back().spans_size() == kSpansPerPart) {
        const auto piece = static_cast<uint32_t>(parts.size());
        parts.emplace_back().set_piece(piece);
      }
      Fill(span, index, parts.back().add_spans());
    }
  }
  parts.back().set_last(true);
  return parts;
}

}  // namespace holdfast
