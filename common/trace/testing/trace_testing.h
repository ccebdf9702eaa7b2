// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_TRACE_TESTING_TRACE_TESTING_H_
#define HOLDFAST_COMMON_TRACE_TESTING_TRACE_TESTING_H_

#include <map>
#include <string>
#include <vector>

namespace holdfast {

// A trace as read from its file.
struct ReadTrace {
  struct Event {
    std::string name;
    // The event's category, such as "rpc".
    std::string kind;
    // The name of the event's process, and the number of the process.
    std::string process;
    int process_id = 0;
    // The name of the event's track.
    std::string track;
    // The number of the track, unique within the process.
    int thread = 0;
    // In microseconds.
    double begin = 0;
    double end = 0;
    // The event's properties that are numbers.
    std::map<std::string, double> args;
    std::string error;
  };

  // Fails the test if `json` is not JSON.
  explicit ReadTrace(const std::string& json);

  std::vector<Event> OfKind(const std::string& kind) const;
  // Whether any two spans of a track either follow one another, in the order of
  // the file, or contain one another.
  bool Nests() const;
  // The events in the order of the file.
  std::vector<Event> events;
  // The file's numbers about the whole trace.
  std::map<std::string, double> data;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TESTING_TRACE_TESTING_H_
