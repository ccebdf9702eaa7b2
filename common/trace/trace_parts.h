// What a task has recorded for a trace of the whole cluster, as it crosses the
// wire (proto/trace.proto).
#ifndef HOLDFAST_COMMON_TRACE_TRACE_PARTS_H_
#define HOLDFAST_COMMON_TRACE_TRACE_PARTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/trace/trace_span.h"
#include "proto/trace.pb.h"

namespace holdfast {

// Spans that a task keeps for a trace of the cluster: the newest. They take
// some 4 MB while the trace is recorded, and 2 MB on their way.
inline constexpr int64_t kMaxClusterTraceSpans = 20'000;

// Add `offset` to a time of the task's clock to have that of ps 0; it may be
// off by `error`, either way.
struct ClockReading {
  absl::Duration offset;
  absl::Duration error;
};

// In pieces as small as the proto wants them, at least one. Tracks without
// spans are left out, and so are spans beyond kMaxClusterTraceSpans.
std::vector<proto::TracePart> ToTraceParts(
    const std::vector<TraceTrack>& tracks, const ClockReading& clock,
    std::optional<absl::Time> complete_from);

int64_t ToTraceNanos(absl::Time time);
absl::Time FromTraceNanos(int64_t nanoseconds);

TraceKind FromProto(proto::TraceSpan::Kind kind);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_PARTS_H_
