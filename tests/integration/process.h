#ifndef HOLDFAST_TESTS_INTEGRATION_PROCESS_H_
#define HOLDFAST_TESTS_INTEGRATION_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace holdfast {

// A program that a test has started. Thread-compatible.
class Process {
 public:
  // Starts the program at `path`, in the test's runfiles
  // ("ps_server/ps_server"), with `args` and, besides the test's own
  // environment, `env` ("NAME=value"). Its output goes to a file.
  Process(const std::string& path, const std::vector<std::string>& args,
          const std::vector<std::string>& env = {});
  // Kills what still runs.
  ~Process();

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // The exit code; 128 + n where signal n ended it; -1 when it still runs after
  // `patience`.
  int Wait(absl::Duration patience);

  // What it has written to stdout and stderr so far.
  std::string Output() const;
  // Waits until Output() has `text`. False when it does not come.
  bool AwaitOutput(const std::string& text, absl::Duration patience);

 private:
  const std::string output_;  // a path
  pid_t pid_ = -1;
  int exit_code_ = -1;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_PROCESS_H_
