// SPDX-License-Identifier: Apache-2.0
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
  // Starts the program at `path` in the test's runfiles ("ps_server/ps_server")
  // with `args`, and with `env` ("NAME=value") added to the test's own
  // environment. Its output goes to a file.
  Process(const std::string& path, const std::vector<std::string>& args,
          const std::vector<std::string>& env = {});
  // Kills the process if it still runs.
  ~Process();

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Returns the exit code; 128 + n if signal n ended the process; -1 if it
  // still runs after `patience`.
  int Wait(absl::Duration patience);

  // The output to stdout and stderr so far.
  std::string Output() const;
  // Waits until Output() contains `text`. Returns false if it does not within
  // `patience`.
  bool AwaitOutput(const std::string& text, absl::Duration patience);

 private:
  const std::string output_;  // a path
  pid_t pid_ = -1;
  int exit_code_ = -1;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_PROCESS_H_
