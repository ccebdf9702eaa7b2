#ifndef HOLDFAST_CLI_TRACE_FILE_H_
#define HOLDFAST_CLI_TRACE_FILE_H_

#include <string>
#include <vector>

#include "google/protobuf/repeated_field.h"
#include "proto/trace.pb.h"

namespace holdfast {

// What an operator has fetched of a trace of the whole cluster.
struct FetchedTrace {
  using Spans = google::protobuf::RepeatedPtrField<proto::TraceSpan>;

  // The last answer, with the tasks.
  proto::TraceResponse trace;
  // By task, in the order of the answer.
  std::vector<Spans> spans;
};

// The content of the file: a process for each task, ps first, and all times by
// the clock of ps 0, in Chrome's Trace Event Format. Arrows lead from a
// worker's calls to where a ps has served them, and from a step's commit to the
// shards'.
std::string TraceFileText(const FetchedTrace& fetched);

// For people, in lines: which steps it shows and, for each task, how many spans
// and how exact their times are.
std::string TraceSummary(const FetchedTrace& fetched);

// What the trace lacks of what was asked for, for people. Empty: nothing.
std::vector<std::string> MissingFromTrace(const FetchedTrace& fetched);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TRACE_FILE_H_
