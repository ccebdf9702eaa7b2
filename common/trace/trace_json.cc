// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_json.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

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

// In the format's unit.
std::string Microseconds(absl::Duration duration) {
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(duration);
  return absl::StrFormat("%d.%03d", nanoseconds / 1000, nanoseconds % 1000);
}

// Sorts spans by their beginnings; of those that begin together the longest is
// first, because it contains the others.
std::vector<const TraceSpan*> InOrder(std::vector<const TraceSpan*> order) {
  // A span is added when it ends, so of equals the later one is the outer one.
  std::reverse(order.begin(), order.end());
  std::stable_sort(
      order.begin(), order.end(), [](const TraceSpan* a, const TraceSpan* b) {
        return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
      });
  return order;
}

// Distributes spans over lanes so that in each lane they follow one another or,
// if `nested`, may contain one another. Returns the lane of each span, in
// order.
std::vector<int> Lanes(const std::vector<const TraceSpan*>& spans,
                       bool nested) {
  // For each lane, the ends of the spans that are still open.
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
    args.push_back(absl::StrCat(QuotedForJson(name), ":", value));
  }
  if (!span.error.empty()) {
    args.push_back(absl::StrCat("\"error\":", QuotedForJson(span.error)));
  }
  return absl::StrCat(
      "{\"ph\":\"X\",\"name\":", QuotedForJson(span.name), ",\"cat\":\"",
      KindName(span.kind),
      "\",\"ts\":", Microseconds(span.begin - absl::UnixEpoch()),
      ",\"dur\":", Microseconds(span.end - span.begin), ",\"pid\":", process,
      ",\"tid\":", thread, ",\"args\":{", absl::StrJoin(args, ","), "}}");
}

// A metadata event about a process or thread.
std::string Metadata(absl::string_view what, int64_t process, int thread,
                     const std::string& args) {
  return absl::StrCat("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", process,
                      ",\"tid\":", thread, ",\"args\":{", args, "}}");
}

// The ids of the process and the row in which a span is drawn.
struct Drawn {
  int64_t process = 0;
  int thread = 0;
};

// One end of an arrow: `phase` is 's' at its start and 'f' at its target.
std::string ArrowEnd(const TraceArrow& arrow, size_t id, char phase,
                     const TraceSpan& span, const Drawn& drawn) {
  return absl::StrCat("{\"ph\":\"", std::string(1, phase),
                      "\",\"name\":", QuotedForJson(arrow.name),
                      ",\"cat\":\"flow\",\"id\":", id,
                      ",\"ts\":", Microseconds(span.begin - absl::UnixEpoch()),
                      ",\"pid\":", drawn.process, ",\"tid\":", drawn.thread,
                      phase == 'f' ? ",\"bp\":\"e\"}" : "}");
}

}  // namespace

std::string QuotedForJson(absl::string_view text) {
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

std::string ToChromeTrace(absl::Span<const TraceProcess> processes,
                          absl::Span<const TraceArrow> arrows,
                          absl::string_view other_data) {
  std::vector<std::string> events;
  // For each span at which an arrow begins or ends: where it is drawn.
  std::map<const TraceSpan*, Drawn> drawn;
  const auto span_at = [&](const TraceArrow::Place& place) {
    return processes[place.process].rows[place.row].spans[place.span];
  };
  for (const TraceArrow& arrow : arrows) {
    drawn[span_at(arrow.from)];
    drawn[span_at(arrow.to)];
  }
  for (size_t p = 0; p < processes.size(); ++p) {
    const TraceProcess& process = processes[p];
    events.push_back(
        Metadata("process_name", process.id, 0,
                 absl::StrCat("\"name\":", QuotedForJson(process.name))));
    events.push_back(Metadata("process_sort_index", process.id, 0,
                              absl::StrCat("\"sort_index\":", p)));
    int thread = 0;
    for (const TraceProcess::Row& row : process.rows) {
      const std::vector<const TraceSpan*> spans = InOrder(row.spans);
      const std::vector<int> lanes =
          Lanes(spans, row.kind == TraceTrack::Kind::kNested);
      const int num_lanes =
          lanes.empty() ? 0 : *std::max_element(lanes.begin(), lanes.end()) + 1;
      for (int lane = 0; lane < num_lanes; ++lane) {
        const int id = thread + 1 + lane;
        events.push_back(
            Metadata("thread_name", process.id, id,
                     absl::StrCat("\"name\":", QuotedForJson(row.name))));
        events.push_back(Metadata("thread_sort_index", process.id, id,
                                  absl::StrCat("\"sort_index\":", id)));
      }
      for (size_t i = 0; i < spans.size(); ++i) {
        const int id = thread + 1 + lanes[i];
        events.push_back(Event(*spans[i], process.id, id));
        const auto end = drawn.find(spans[i]);
        if (end != drawn.end()) end->second = {process.id, id};
      }
      thread += num_lanes;
    }
  }
  for (size_t i = 0; i < arrows.size(); ++i) {
    const TraceSpan* const from = span_at(arrows[i].from);
    const TraceSpan* const to = span_at(arrows[i].to);
    events.push_back(ArrowEnd(arrows[i], i + 1, 's', *from, drawn[from]));
    events.push_back(ArrowEnd(arrows[i], i + 1, 'f', *to, drawn[to]));
  }
  return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n",
                      absl::StrJoin(events, ",\n"), "\n],\"otherData\":{",
                      other_data, "}}\n");
}

}  // namespace holdfast
