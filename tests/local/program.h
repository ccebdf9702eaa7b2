#ifndef HOLDFAST_TESTS_LOCAL_PROGRAM_H_
#define HOLDFAST_TESTS_LOCAL_PROGRAM_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace holdfast {

// A program under test: its output comes through a pipe, so that a test waits
// for what the program says rather than for time to pass.
//
// Failures of the machinery end the test program. Thread-compatible.
class Program {
 public:
  // Starts `args[0]` with more variables in its environment. Standard output
  // and error are read as one.
  explicit Program(const std::vector<std::string>& args,
                   const std::map<std::string, std::string>& environment = {});
  // Kills it when it still runs.
  ~Program();

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  // What it has said, as far as it has been read.
  const std::string& output() const { return output_; }

  // Reads on until the output contains `text`. False when it ends without, or
  // after `timeout`.
  bool ReadUntil(const std::string& text,
                 absl::Duration timeout = absl::Seconds(30));

  void Signal(int signal);

  // Reads to the end. The exit status, or 128 + the signal that ended it; -1
  // when it has not ended after `timeout`, and is killed.
  int Wait(absl::Duration timeout = absl::Seconds(40));

 private:
  // False at the end of the output, or after the deadline.
  bool ReadMore(absl::Time deadline);

  pid_t pid_ = 0;
  int pipe_ = -1;
  std::string output_;
  bool reaped_ = false;
};

// A process of any parent: for waiting until it has gone.
class WatchedProcess {
 public:
  explicit WatchedProcess(pid_t pid);
  ~WatchedProcess();

  WatchedProcess(const WatchedProcess&) = delete;
  WatchedProcess& operator=(const WatchedProcess&) = delete;

  bool IsGoneWithin(absl::Duration timeout) const;

 private:
  int fd_;  // a pidfd; -1: it had gone before
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_LOCAL_PROGRAM_H_
