// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_TRACE_FILE_H_
#define HOLDFAST_CLI_TRACE_FILE_H_

#include <string>
#include <vector>

#include "google/protobuf/repeated_field.h"
#include "proto/trace.pb.h"

namespace holdfast {

// A trace of the whole cluster, as fetched by an operator.
struct FetchedTrace {
  using Spans = google::protobuf::RepeatedPtrField<proto::TraceSpan>;

  // The last answer, which lists the tasks.
  proto::TraceResponse trace;
  // The spans of each task, in the order of the answer.
  std::vector<Spans> spans;
};

// The content of the trace file, in Chrome's Trace Event Format: one process
// per task, ps first, with all times by the clock of ps 0. Arrows lead from a
// worker's calls to their execution on a ps, and from a step's commit to the
// commits on the shards.
std::string TraceFileText(const FetchedTrace& fetched);

// A summary for people, in lines: the steps in the trace and, for each task,
// the number of spans and the accuracy of their times.
std::string TraceSummary(const FetchedTrace& fetched);

// What is missing from the requested trace, for people. Empty if it is
// complete.
std::vector<std::string> MissingFromTrace(const FetchedTrace& fetched);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TRACE_FILE_H_
