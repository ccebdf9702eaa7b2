// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_TRACE_TRACE_REQUEST_H_
#define HOLDFAST_COMMON_TRACE_TRACE_REQUEST_H_

#include "common/trace/trace_span.h"
#include "google/protobuf/message.h"

namespace holdfast {

// Adds to `args` some fields of `request`, a message of proto/, if it has them:
// `step`, `seat` and `sequence` of a push, by which the push can be followed
// through the trace, and the `version` of a pull.
void AddRequestArgs(const google::protobuf::Message& request,
                    TraceSpan::Args* args);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_REQUEST_H_
