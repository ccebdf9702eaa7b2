// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_CHILD_PROCESS_H_
#define HOLDFAST_CLI_CHILD_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

// How a process ended.
struct ExitStatus {
  // Exit status, unless a signal ended the process.
  int code = 0;
  // The signal that ended it, or 0.
  int signal = 0;

  bool ok() const { return code == 0 && signal == 0; }
  // "exit status 1"; "signal 9 (Killed)".
  std::string ToString() const;
};

// A process that this one has started and that does not outlive it. It has a
// process group of its own, so that a Ctrl-C at the terminal does not reach it,
// and the kernel kills it when the thread that started it ends.
//
// Start and TryReap do not block. Thread-compatible.
class ChildProcess {
 public:
  struct Options {
    // A path; $PATH is not searched.
    std::string binary;
    // The arguments after the program's name.
    std::vector<std::string> args;
    // The file to which `log_header`, standard output and standard error are
    // appended. Standard input is empty.
    std::string log_path;
    std::string log_header;
    // Environment variables added to those of this process; they override
    // variables of the same name.
    std::map<std::string, std::string> environment = {};
  };

  // Must be called from a thread that lives as long as the child should,
  // because the kernel ties the child's life to it. Errors: those of the
  // system, naming the file or program; INTERNAL when the program cannot be
  // run.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const Options& options);

  // Kills the process and its children, if it has not ended, and waits until it
  // has.
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Sends `signal` to the process and its children. Does nothing once the
  // process has been reaped.
  void Signal(int signal);

  // If the process has ended, returns how, and kills the children that it has
  // left running. Otherwise returns nullopt. Must be called after each SIGCHLD.
  std::optional<ExitStatus> TryReap();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  std::optional<ExitStatus> Reap(int wait_flags);

  const pid_t pid_;
  std::optional<ExitStatus> ended_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CHILD_PROCESS_H_
