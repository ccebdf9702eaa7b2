// SPDX-License-Identifier: Apache-2.0
#include "common/trace/testing/trace_testing.h"

#include <google/protobuf/message.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <utility>

namespace holdfast {

namespace {

using ::google::protobuf::Message;
using ::google::protobuf::Value;

// The fields of a JSON object. Uses reflection, because map code compiled from
// the headers with -fsanitize=thread does not match the library, which was
// built without it.
class Fields {
 public:
  explicit Fields(const google::protobuf::Struct& object) {
    const auto* const reflection = object.GetReflection();
    const auto* const field = object.GetDescriptor()->field(0);
    for (int i = 0; i < reflection->FieldSize(object, field); ++i) {
      const Message& entry = reflection->GetRepeatedMessage(object, field, i);
      const auto* const of_entry = entry.GetReflection();
      const auto* const descriptor = entry.GetDescriptor();
      values_[of_entry->GetString(entry, descriptor->map_key())] =
          static_cast<const Value*>(
              &of_entry->GetMessage(entry, descriptor->map_value()));
    }
  }
  explicit Fields(const Value& value) : Fields(value.struct_value()) {}

  // Returns a null value if there is none.
  const Value& operator[](const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? Value::default_instance() : *found->second;
  }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  std::map<std::string, const Value*> values_;
};

}  // namespace

ReadTrace::ReadTrace(const std::string& json) {
  google::protobuf::Struct all;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &all);
  if (!status.ok()) {
    ADD_FAILURE() << status.ToString() << "\n" << json.substr(0, 1000);
    return;
  }
  const Fields top(all);
  for (const auto& [name, value] : Fields(top["otherData"])) {
    data[name] = value->number_value();
  }
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> names;
  for (const Value& value : top["traceEvents"].list_value().values()) {
    const Fields fields(value);
    const Fields args(fields["args"]);
    const int process = static_cast<int>(fields["pid"].number_value());
    const int thread = static_cast<int>(fields["tid"].number_value());
    const std::string& name = fields["name"].string_value();
    if (name == "process_name")
      processes[process] = args["name"].string_value();
    if (name == "thread_name")
      names[{process, thread}] = args["name"].string_value();
    if (fields["ph"].string_value() != "X") continue;
    Event event;
    event.name = name;
    event.kind = fields["cat"].string_value();
    event.process = processes[process];
    event.process_id = process;
    event.track = names[{process, thread}];
    event.thread = thread;
    event.begin = fields["ts"].number_value();
    event.end = event.begin + fields["dur"].number_value();
    for (const auto& [key, arg] : args) {
      if (key == "error") {
        event.error = arg->string_value();
      } else {
        event.args[key] = arg->number_value();
      }
    }
    events.push_back(event);
  }
}

std::vector<ReadTrace::Event> ReadTrace::OfKind(const std::string& kind) const {
  std::vector<Event> found;
  for (const Event& event : events) {
    if (event.kind == kind) found.push_back(event);
  }
  return found;
}

bool ReadTrace::Nests() const {
  // Times are nanoseconds as microseconds in double; rounding errors of sums
  // are smaller than this.
  constexpr double kRounding = 1e-3;
  // For each track, the ends of the spans that are still open.
  std::map<std::pair<int, int>, std::vector<double>> open;
  std::map<std::pair<int, int>, double> last_begin;
  for (const Event& event : events) {
    const std::pair<int, int> track = {event.process_id, event.thread};
    std::vector<double>& ends = open[track];
    const auto [last, is_first] = last_begin.try_emplace(track, event.begin);
    if (event.end < event.begin || event.begin < last->second) return false;
    last->second = event.begin;
    while (!ends.empty() && ends.back() <= event.begin + kRounding) {
      ends.pop_back();
    }
    if (!ends.empty() && event.end > ends.back() + kRounding) return false;
    ends.push_back(event.end);
  }
  return true;
}

}  // namespace holdfast
