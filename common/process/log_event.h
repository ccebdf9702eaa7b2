// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_PROCESS_LOG_EVENT_H_
#define HOLDFAST_COMMON_PROCESS_LOG_EVENT_H_

#include <string>

#include "proto/coordinator.pb.h"

namespace holdfast {

// Logs the text of an event of the job, as one line: as ERROR if the job has
// failed, as WARNING if it may need attention (LOST, FENCED, GENERATION,
// CHECKPOINT_FAILED, SLOW), and otherwise as INFO. In a JSON log the line has
// more fields (common/process/json_log.h). `file` and `line` are the caller's.
//
// Thread-safe.
void LogEvent(const proto::Event& event, const char* file = __builtin_FILE(),
              int line = __builtin_LINE());

// The event's kind in lower case, such as "checkpoint_failed": its name for
// people and in logs.
std::string EventName(proto::Event::Kind kind);

// The event that this thread is logging in LogEvent, or null.
const proto::Event* EventBeingLogged();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_LOG_EVENT_H_
