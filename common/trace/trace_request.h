#ifndef HOLDFAST_COMMON_TRACE_TRACE_REQUEST_H_
#define HOLDFAST_COMMON_TRACE_TRACE_REQUEST_H_

#include "common/trace/trace_span.h"
#include "google/protobuf/message.h"

namespace holdfast {

// What a trace tells of a request of proto/, as far as it has it: `step`,
// `seat` and `sequence` of a push, by which it can be followed, and the
// `version` that is pulled.
void AddRequestArgs(const google::protobuf::Message& request,
                    TraceSpan::Args* args);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_REQUEST_H_
