// SPDX-License-Identifier: Apache-2.0
#include "common/process/log_event.h"

#include "absl/strings/ascii.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

thread_local const proto::Event* event_being_logged = nullptr;

google::LogSeverity SeverityOf(proto::Event::Kind kind) {
  switch (kind) {
    case proto::Event::FAILED:
      return google::GLOG_ERROR;
    case proto::Event::LOST:
    case proto::Event::FENCED:
    case proto::Event::GENERATION:
    case proto::Event::CHECKPOINT_FAILED:
    case proto::Event::SLOW:
      return google::GLOG_WARNING;
    default:
      return google::GLOG_INFO;
  }
}

}  // namespace

void LogEvent(const proto::Event& event, const char* file, int line) {
  event_being_logged = &event;
  // The line is written when the message is destroyed.
  google::LogMessage(file, line, SeverityOf(event.kind())).stream()
      << event.text();
  event_being_logged = nullptr;
}

std::string EventName(proto::Event::Kind kind) {
  return absl::AsciiStrToLower(proto::Event::Kind_Name(kind));
}

const proto::Event* EventBeingLogged() { return event_being_logged; }

}  // namespace holdfast
