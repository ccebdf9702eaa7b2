// SPDX-License-Identifier: Apache-2.0

// The log of glog on standard error.
#ifndef HOLDFAST_COMMON_PROCESS_TEXT_LOG_H_
#define HOLDFAST_COMMON_PROCESS_TEXT_LOG_H_

#include "absl/strings/string_view.h"
#include "glog/logging.h"

namespace holdfast {

// From here on, for the rest of the process, glog's lines go to standard error
// as printable text (common/base/printable_text.h), and nowhere else. Must be
// called at most once, after google::InitGoogleLogging. If the process aborts,
// its stack follows the last line.
void StartTextLog();

// Sends glog's lines to `sink` instead, and nowhere else. `sink` must live as
// long as the process.
void LogOnlyTo(google::LogSink* sink);

// Writes `message` to standard error as a line of glog's, printable.
void WriteLogLine(google::LogSeverity severity, const char* file, int line,
                  const google::LogMessageTime& time,
                  absl::string_view message);

// Writes `text` to standard error. Errors are ignored.
void WriteToStderr(absl::string_view text);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_TEXT_LOG_H_
