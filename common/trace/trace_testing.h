#ifndef HOLDFAST_COMMON_TRACE_TRACE_TESTING_H_
#define HOLDFAST_COMMON_TRACE_TRACE_TESTING_H_

#include <map>
#include <string>
#include <vector>

namespace holdfast {

// A trace as a reader of its file sees it.
struct ReadTrace {
  struct Event {
    std::string name;
    // Its category: "rpc".
    std::string kind;
    // The name of its process, and its number.
    std::string process;
    int process_id = 0;
    // Its name.
    std::string track;
    // Of the track, unlike that of any other of the process.
    int thread = 0;
    // Microseconds.
    double begin = 0;
    double end = 0;
    // Numbers alone.
    std::map<std::string, double> args;
    std::string error;
  };

  // A failure of the test where `json` is no JSON.
  explicit ReadTrace(const std::string& json);

  std::vector<Event> OfKind(const std::string& kind) const;
  // Whether on each track the spans follow one another, in the order of the
  // file, or lie within one another.
  bool Nests() const;
  // In the order of the file.
  std::vector<Event> events;
  // What the file says of the whole trace; numbers.
  std::map<std::string, double> data;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_TRACE_TRACE_TESTING_H_
