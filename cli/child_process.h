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
  // Exit status, where it was not a signal that ended the process.
  int code = 0;
  // The signal that ended it, or 0.
  int signal = 0;

  bool ok() const { return code == 0 && signal == 0; }
  // "exit status 1"; "signal 9 (Killed)".
  std::string ToString() const;
};

// A process that this one has started and that does not outlive it: it stands
// in a process group of its own, so that a Ctrl-C at the terminal does not
// reach it, and the kernel kills it when the thread that started it ends.
//
// Start and TryReap do not block. Thread-compatible.
class ChildProcess {
 public:
  struct Options {
    // A path, not looked up.
    std::string binary;
    // Behind the name of the program.
    std::vector<std::string> args;
    // Standard output and error are appended to it, after `log_header`.
    // Standard input is empty.
    std::string log_path;
    std::string log_header;
    // Variables that it has beside, or in place of, those of this process.
    std::map<std::string, std::string> environment = {};
  };

  // To be called from a thread that lives as long as the child should: the
  // kernel ties the child's life to it.
  // Errors: as the system says, naming the file or program; INTERNAL when the
  // program cannot be run.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const Options& options);

  // Kills the process and what it has started, if it has not ended, and waits
  // until it has.
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Sends `signal` to the process and to those that it has started; nothing
  // when it has been reaped.
  void Signal(int signal);

  // How it ended, once it has; what it has started and left running is killed
  // then. SIGCHLD tells when to ask.
  std::optional<ExitStatus> TryReap();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  std::optional<ExitStatus> Reap(int wait_flags);

  const pid_t pid_;
  std::optional<ExitStatus> ended_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CHILD_PROCESS_H_
