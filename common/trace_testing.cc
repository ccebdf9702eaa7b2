#include "common/trace_testing.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

namespace holdfast {

ReadTrace::ReadTrace(const std::string& json) {
  google::protobuf::Struct all;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &all);
  if (!status.ok()) {
    ADD_FAILURE() << status.ToString() << "\n" << json.substr(0, 1000);
    return;
  }
  other_data = all.fields().at("otherData").struct_value();
  std::map<int, std::string> names;
  for (const auto& value :
       all.fields().at("traceEvents").list_value().values()) {
    const auto& fields = value.struct_value().fields();
    const auto& args = fields.at("args").struct_value().fields();
    const int thread = static_cast<int>(fields.at("tid").number_value());
    const std::string& name = fields.at("name").string_value();
    if (name == "thread_name") names[thread] = args.at("name").string_value();
    if (fields.at("ph").string_value() != "X") continue;
    Event event;
    event.name = name;
    event.kind = fields.at("cat").string_value();
    event.track = names[thread];
    event.thread = thread;
    event.begin = fields.at("ts").number_value();
    event.end = event.begin + fields.at("dur").number_value();
    for (const auto& [key, arg] : args) {
      if (key == "error") {
        event.error = arg.string_value();
      } else {
        event.args[key] = arg.number_value();
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
  // Nanoseconds as microseconds in double: sums are off by less.
  constexpr double kRounding = 1e-3;
  // By track, the ends of the spans that are not over.
  std::map<int, std::vector<double>> open;
  std::map<int, double> last_begin;
  for (const Event& event : events) {
    std::vector<double>& ends = open[event.thread];
    const auto [last, is_first] =
        last_begin.try_emplace(event.thread, event.begin);
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

double ReadTrace::Data(const std::string& name) const {
  const auto found = other_data.fields().find(name);
  return found == other_data.fields().end() ? 0 : found->second.number_value();
}

}  // namespace holdfast
