#ifndef HOLDFAST_COMMON_TRACE_TRACE_SPAN_H_
#define HOLDFAST_COMMON_TRACE_TRACE_SPAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"

namespace holdfast {

// What a span of a trace is (docs/operating/tracing.md). The words stand in the
// file, as the span's category.
enum class TraceKind {
  kStep,     // "step": the work on a step or ticket, from its begin to its end
  kModel,    // "model": a model, or a part of it
  kCompute,  // "compute": an operation of a backend
  kCopy,     // "copy": to a device or from it
  kWait,     // "wait": of a thread, for something that others do
  kRpc,      // "rpc": a call, from the request to the answer
};

struct TraceSpan {
  // What else there is to say, as numbers.
  using Args = absl::InlinedVector<std::pair<const char*, int64_t>, 3>;

  TraceKind kind = TraceKind::kStep;
  std::string name;
  // By the tracer's clock.
  absl::Time begin;
  absl::Time end;
  Args args;
  // Of what failed. Empty: it did not.
  std::string error;
};

// A row of spans.
struct TraceTrack {
  enum class Kind {
    // Spans follow one another, or one lies within the other.
    kNested,
    // Spans overlap as they like. In the file as many rows as it takes for none
    // to overlap another.
    kOverlapping,
  };

  std::string name;
  Kind kind = Kind::kNested;
  std::vector<TraceSpan> spans;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_SPAN_H_
