// SPDX-License-Identifier: Apache-2.0

// A task's share of a trace of the whole cluster, as sent on the wire
// (proto/trace.proto).
#ifndef HOLDFAST_COMMON_TRACE_TRACE_PARTS_H_
#define HOLDFAST_COMMON_TRACE_TRACE_PARTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/trace/trace_span.h"
#include "proto/trace.pb.h"

namespace holdfast {

// The maximum number of spans that a task keeps for a trace of the cluster; it
// keeps the newest. So many spans take about 4 MB while the trace is recorded,
// and 2 MB on the wire.
inline constexpr int64_t kMaxClusterTraceSpans = 20'000;

// How a task's clock compares with ps 0's: adding `offset` to a time of the
// task's clock gives the time of ps 0's clock, within plus or minus `error`.
struct ClockReading {
  absl::Duration offset;
  absl::Duration error;
};

// Divides the tracks into parts, at least one, each within the proto's limits.
// Tracks without spans and spans beyond kMaxClusterTraceSpans are left out.
std::vector<proto::TracePart> ToTraceParts(
    const std::vector<TraceTrack>& tracks, const ClockReading& clock,
    std::optional<absl::Time> complete_from);

int64_t ToTraceNanos(absl::Time time);
absl::Time FromTraceNanos(int64_t nanoseconds);

TraceKind FromProto(proto::TraceSpan::Kind kind);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_PARTS_H_
