// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_LOCAL_PROGRAM_H_
#define HOLDFAST_TESTS_LOCAL_PROGRAM_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace holdfast {

// A program under test. Its output comes through a pipe, so that a test waits
// for output rather than for time to pass.
//
// A failure to start or control the program ends the test program.
// Thread-compatible.
class Program {
 public:
  // Starts `args[0]` with `environment` added to the test's own. Standard
  // output and standard error are read as one stream.
  explicit Program(const std::vector<std::string>& args,
                   const std::map<std::string, std::string>& environment = {});
  // Kills the program if it still runs.
  ~Program();

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  // The output read so far.
  const std::string& output() const { return output_; }

  // Reads until the output contains `text`. Returns false if the output ends
  // without it, or after `timeout`.
  bool ReadUntil(const std::string& text,
                 absl::Duration timeout = absl::Seconds(30));

  void Signal(int signal);

  // Reads to the end of the output. Returns the exit status, or 128 + the
  // number of the signal that ended the program. After `timeout`, kills the
  // program and returns -1.
  int Wait(absl::Duration timeout = absl::Seconds(40));

 private:
  // Returns false at the end of the output, or after the deadline.
  bool ReadMore(absl::Time deadline);

  pid_t pid_ = 0;
  int pipe_ = -1;
  std::string output_;
  bool reaped_ = false;
};

// Waits for the end of a process, which need not be a child.
class WatchedProcess {
 public:
  explicit WatchedProcess(pid_t pid);
  ~WatchedProcess();

  WatchedProcess(const WatchedProcess&) = delete;
  WatchedProcess& operator=(const WatchedProcess&) = delete;

  bool IsGoneWithin(absl::Duration timeout) const;

 private:
  int fd_;  // a pidfd; -1 if the process had already ended
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_LOCAL_PROGRAM_H_
