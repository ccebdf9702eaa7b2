// SPDX-License-Identifier: Apache-2.0

// The log as JSON, for systems that collect logs: one object per line, such as
//
//   {"time":"2024-05-17T10:00:00.123456Z","severity":"WARNING",
//    "task":"/job:ps/task:0","generation":2,"step":1230,
//    "file":"coordinator.cc:223","thread":17,"message":"worker 1 is lost",
//    "event":"lost","about":"/job:worker/task:1"}
//
// but without the line breaks. "task", "generation" and "step" are present once
// they are known: their values are those last set for the process, except that
// the line of an event (common/process/log_event.h) has the event's generation
// and step. Only the line of an event has "event", and "about", the task that
// the event is about.
//
// All functions are thread-safe.
#ifndef HOLDFAST_COMMON_PROCESS_JSON_LOG_H_
#define HOLDFAST_COMMON_PROCESS_JSON_LOG_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// From here on, for the rest of the process, glog's lines go to standard error
// as JSON, and nowhere else. Must be called once, after
// google::InitGoogleLogging. If the process aborts, its stack follows the last
// line as text.
void StartJsonLog();

// Set the task, generation and step of all later lines of this process. Cheap
// enough to be called at every step.
void SetLogTask(const TaskId& task);
void SetLogGeneration(uint64_t generation);
void SetLogStep(uint64_t step);

// The contents of a line.
struct LogLine {
  absl::Time time;
  // Such as "INFO".
  absl::string_view severity;
  // Empty if not known yet.
  absl::string_view task;
  // 0 if not known yet.
  uint64_t generation = 0;
  uint64_t step = 0;
  // Such as "server.cc".
  absl::string_view file;
  int line = 0;
  int64_t thread = 0;
  absl::string_view message;
  // Null if the line is not about an event.
  const proto::Event* event = nullptr;
};

// `line` as JSON, including the line feed.
std::string FormatJsonLogLine(const LogLine& line);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_JSON_LOG_H_
