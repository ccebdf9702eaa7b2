// SPDX-License-Identifier: Apache-2.0

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

// A process in a file.
struct TraceProcess {
  // Like a TraceTrack, but with pointers to its spans, which are in the order
  // in which they ended.
  struct Row {
    std::string name;
    TraceTrack::Kind kind = TraceTrack::Kind::kNested;
    std::vector<const TraceSpan*> spans;
  };

  int64_t id = 0;
  std::string name;
  std::vector<Row> rows;
};

// An arrow from the beginning of one span to the beginning of another.
struct TraceArrow {
  // The indices of process, row and span.
  struct Place {
    size_t process = 0;
    size_t row = 0;
    size_t span = 0;
  };

  std::string name;
  Place from;
  Place to;
};

// `text` as a JSON string (RFC 8259). Bytes that are not ASCII are left
// unchanged.
std::string QuotedForJson(absl::string_view text);

// The contents of a file. `other_data` has the members of a JSON object about
// the whole trace, such as `"a":1,"b":2`; it may be empty.
std::string ToChromeTrace(absl::Span<const TraceProcess> processes,
                          absl::Span<const TraceArrow> arrows,
                          absl::string_view other_data);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_JSON_H_
