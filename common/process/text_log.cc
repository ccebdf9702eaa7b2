// SPDX-License-Identifier: Apache-2.0
#include "common/process/text_log.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/printable_text.h"

namespace holdfast {
namespace {

class TextSink : public google::LogSink {
 public:
  using google::LogSink::send;
  void send(google::LogSeverity severity, const char*,
            const char* base_filename, int line,
            const google::LogMessageTime& time, const char* message,
            size_t message_len) override {
    WriteLogLine(severity, base_filename, line, time, {message, message_len});
  }
};

}  // namespace

void StartTextLog() { LogOnlyTo(new TextSink); }

void LogOnlyTo(google::LogSink* sink) {
  google::AddLogSink(sink);
  // Disables glog's own lines on standard error, and its files.
  FLAGS_logtostderr = false;
  FLAGS_stderrthreshold = google::NUM_SEVERITIES;
  for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
  }
}

void WriteLogLine(google::LogSeverity severity, const char* file, int line,
                  const google::LogMessageTime& time,
                  absl::string_view message) {
  const std::string text = google::LogSink::ToString(
      severity, file, line, time, message.data(), message.size());
  WriteToStderr(absl::StrCat(PrintableLines(text), "\n"));
}

void WriteToStderr(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(written);
  }
}

}  // namespace holdfast
