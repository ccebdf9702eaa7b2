// SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// Runs in the child between fork and exec. Makes only calls that are safe after
// a fork. Returns errno if the program cannot be run.
int Become(const char* binary, char* const* argv, char* const* environment,
           int input, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If the parent ended before the line above, nothing would kill this child.
  if (getppid() != parent) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) {
    ::signal(signal, SIG_DFL);
  }
  if (dup2(input, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
      dup2(log, STDERR_FILENO) < 0) {
    return errno;
  }
  execve(binary, argv, environment);
  return errno;
}

// "NAME=value" for each of this process's variables, with `changes`.
std::vector<std::string> EnvironmentWith(
    const std::map<std::string, std::string>& changes) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const absl::string_view text = *variable;
    const std::string name(text.substr(0, text.find('=')));
    if (changes.count(name) == 0) all.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    all.push_back(absl::StrCat(name, "=", value));
  }
  return all;
}

// In the form that execve expects. `words` must outlive the result.
std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<int> Open(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  return fd;
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal != 0) {
    return absl::StrCat("signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("exit status ", code);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const Options& options) {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto log, Open(options.log_path, O_WRONLY | O_CREAT | O_APPEND));
  const auto close_log = absl::MakeCleanup([&] { close(log); });
  const std::string& header = options.log_header;
  if (write(log, header.data(), header.size()) !=
      static_cast<ssize_t>(header.size())) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot write ", options.log_path));
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto input, Open("/dev/null", O_RDONLY));
  const auto close_input = absl::MakeCleanup([&] { close(input); });
  // Closed without data if exec succeeds; otherwise carries its errno.
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "cannot create a pipe");
  }
  const auto close_failure = absl::MakeCleanup([&] { close(failure[0]); });

  std::vector<std::string> words = {options.binary};
  words.insert(words.end(), options.args.begin(), options.args.end());
  const std::vector<char*> argv = Pointers(words);
  const std::vector<std::string> variables =
      EnvironmentWith(options.environment);
  const std::vector<char*> environment = Pointers(variables);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    const int error = Become(options.binary.c_str(), argv.data(),
                             environment.data(), input, log, parent);
    const ssize_t written = write(failure[1], &error, sizeof(error));
    _exit(written > 0 ? 126 : 127);
  }
  const int fork_error = errno;
  close(failure[1]);
  if (pid < 0) return absl::ErrnoToStatus(fork_error, "cannot fork");
  // Done in the parent as well, so that Signal finds the group from the start.
  setpgid(pid, pid);

  auto child = std::unique_ptr<ChildProcess>(new ChildProcess(pid));
  int error = 0;
  ssize_t size;
  do {
    size = read(failure[0], &error, sizeof(error));
  } while (size < 0 && errno == EINTR);
  if (size > 0) {
    return absl::InternalError(
        absl::StrCat("cannot run ", options.binary, ": ", strerror(error)));
  }
  return child;
}

ChildProcess::~ChildProcess() {
  if (ended_.has_value()) return;
  Signal(SIGKILL);
  Reap(0);
}

void ChildProcess::Signal(int signal) {
  if (!ended_.has_value()) kill(-pid_, signal);
}

std::optional<ExitStatus> ChildProcess::TryReap() { return Reap(WNOHANG); }

std::optional<ExitStatus> ChildProcess::Reap(int wait_flags) {
  if (ended_.has_value()) return ended_;
  // Its process group ID cannot be reused before it has been reaped.
  siginfo_t info = {};
  int result;
  do {
    result = waitid(P_PID, pid_, &info, WEXITED | WNOWAIT | wait_flags);
  } while (result < 0 && errno == EINTR);
  if (result < 0 || info.si_pid != pid_) return std::nullopt;
  kill(-pid_, SIGKILL);
  int status = 0;
  pid_t pid;
  do {
    pid = waitpid(pid_, &status, 0);
  } while (pid < 0 && errno == EINTR);
  if (pid != pid_) return std::nullopt;
  ended_.emplace();
  if (WIFSIGNALED(status)) {
    ended_->signal = WTERMSIG(status);
  } else {
    ended_->code = WEXITSTATUS(status);
  }
  return ended_;
}

}  // namespace holdfast
