// SPDX-License-Identifier: Apache-2.0
#include "common/process/json_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/process/log_event.h"
#include "common/process/text_log.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// Never destroyed: threads may log while the process exits.
struct Facts {
  // Null if not known. A string that was set is never freed, because another
  // thread may be reading it; a process sets it once.
  std::atomic<const std::string*> task{nullptr};
  std::atomic<uint64_t> generation{0};
  std::atomic<uint64_t> step{0};
};

Facts& TheFacts() {
  static auto* const facts = new Facts;
  return *facts;
}

class JsonSink : public google::LogSink {
 public:
  void send(google::LogSeverity severity, const char* full_filename,
            const char* base_filename, int line,
            const google::LogMessageTime& time, const char* message,
            size_t message_len) override {
    const Facts& facts = TheFacts();
    const std::string* const task = facts.task.load(std::memory_order_acquire);
    LogLine json;
    json.time =
        absl::FromTimeT(time.timestamp()) + absl::Microseconds(time.usec());
    json.severity = google::GetLogSeverityName(severity);
    if (task != nullptr) json.task = *task;
    json.generation = facts.generation.load(std::memory_order_relaxed);
    json.step = facts.step.load(std::memory_order_relaxed);
    json.file = base_filename;
    json.line = line;
    json.thread = syscall(SYS_gettid);
    json.message = absl::string_view(message, message_len);
    json.event = EventBeingLogged();
    WriteToStderr(FormatJsonLogLine(json));
  }
};

}  // namespace

void StartJsonLog() { LogOnlyTo(new JsonSink); }

void SetLogTask(const TaskId& task) {
  TheFacts().task.store(new std::string(task.ToString()),
                        std::memory_order_release);
}

void SetLogGeneration(uint64_t generation) {
  TheFacts().generation.store(generation, std::memory_order_relaxed);
}

void SetLogStep(uint64_t step) {
  TheFacts().step.store(step, std::memory_order_relaxed);
}

std::string FormatJsonLogLine(const LogLine& line) {
  const uint64_t generation =
      line.event != nullptr ? line.event->generation() : line.generation;
  const uint64_t step = line.event != nullptr ? line.event->step() : line.step;
  std::string json = absl::StrCat(
      R"({"time":")",
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", line.time, absl::UTCTimeZone()),
      R"(","severity":)", JsonString(line.severity));
  if (!line.task.empty()) {
    absl::StrAppend(&json, R"(,"task":)", JsonString(line.task));
  }
  if (generation > 0) {
    absl::StrAppend(&json, R"(,"generation":)", generation, R"(,"step":)",
                    step);
  }
  absl::StrAppend(
      &json, R"(,"file":)", JsonString(absl::StrCat(line.file, ":", line.line)),
      R"(,"thread":)", line.thread, R"(,"message":)", JsonString(line.message));
  if (line.event != nullptr) {
    absl::StrAppend(&json, R"(,"event":)",
                    JsonString(EventName(line.event->kind())));
    if (line.event->has_task()) {
      const TaskId about = {line.event->task().job(),
                            line.event->task().index()};
      absl::StrAppend(&json, R"(,"about":)", JsonString(about.ToString()));
    }
  }
  json += "}\n";
  return json;
}

}  // namespace holdfast
