// Traces as files of Chrome's Trace Event Format, which Perfetto and
// chrome://tracing show.
#ifndef HOLDFAST_COMMON_TRACE_TRACE_JSON_H_
#define HOLDFAST_COMMON_TRACE_TRACE_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/trace/trace_span.h"

namespace holdfast {

// A process of a file. Its rows stand in this order.
struct TraceProcess {
  // As a TraceTrack, in the order in which the spans ended.
  struct Row {
    std::string name;
    TraceTrack::Kind kind = TraceTrack::Kind::kNested;
    std::vector<const TraceSpan*> spans;
  };

  int64_t id = 0;
  std::string name;
  std::vector<Row> rows;
};

// From the beginning of one span to another.
struct TraceArrow {
  // Indices of process, row and span.
  struct Place {
    size_t process = 0;
    size_t row = 0;
    size_t span = 0;
  };

  std::string name;
  Place from;
  Place to;
};

// A string of JSON (RFC 8259). Bytes that are no ASCII are left as they are.
std::string QuotedForJson(absl::string_view text);

// The content of a file. `other_data`: members of a JSON object that belong to
// the whole trace, as `"a":1,"b":2`; may be empty.
std::string ToChromeTrace(absl::Span<const TraceProcess> processes,
                          absl::Span<const TraceArrow> arrows,
                          absl::string_view other_data);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_JSON_H_
