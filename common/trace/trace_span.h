// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_TRACE_TRACE_SPAN_H_
#define HOLDFAST_COMMON_TRACE_TRACE_SPAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"

namespace holdfast {

// The kinds of spans in a trace (docs/operating/tracing.md). The file contains
// the words in quotes as the spans' categories.
enum class TraceKind {
  kStep,  // "step": the work on a step or ticket, from its beginning to its end
  kModel,    // "model": a model, or a part of it
  kCompute,  // "compute": an operation of a backend
  kCopy,     // "copy": a copy to or from a device
  kWait,     // "wait": a thread's wait for others
  kRpc,      // "rpc": a call, from the request to the answer
};

struct TraceSpan {
  // Further properties, as numbers.
  using Args = absl::InlinedVector<std::pair<const char*, int64_t>, 3>;

  TraceKind kind = TraceKind::kStep;
  std::string name;
  // Times of the tracer's clock.
  absl::Time begin;
  absl::Time end;
  Args args;
  // The error, if what the span stands for has failed; otherwise empty.
  std::string error;
};

// A row of spans.
struct TraceTrack {
  enum class Kind {
    // Spans follow or contain one another.
    kNested,
    // Spans may overlap. In the file the track has as many rows as are
    // necessary for no two spans of a row to overlap.
    kOverlapping,
  };

  std::string name;
  Kind kind = Kind::kNested;
  std::vector<TraceSpan> spans;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_SPAN_H_
