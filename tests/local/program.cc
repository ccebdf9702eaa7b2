// SPDX-License-Identifier: Apache-2.0
#include "tests/local/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "common/base/clock.h"
#include "glog/logging.h"
#include "tests/rpc_threads/rpc_threads.h"

namespace holdfast {
namespace {

// Calls poll(2) on one descriptor. Returns false after the deadline.
bool IsReadableBy(int fd, absl::Time deadline) {
  pollfd fds[] = {{fd, POLLIN, 0}};
  int ready;
  do {
    const absl::Duration left =
        std::max(deadline - SteadyNow(), absl::ZeroDuration());
    ready = poll(fds, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

}  // namespace

Program::Program(const std::vector<std::string>& args,
                 const std::map<std::string, std::string>& environment) {
  int ends[2];
  PCHECK(pipe2(ends, O_CLOEXEC) == 0);
  std::vector<char*> argv;
  const std::vector<std::string> all_args = WithRpcThreads(args);
  for (const std::string& arg : all_args) {
    argv.push_back(const_cast<char*>(arg.c_str()));
  }
  argv.push_back(nullptr);
  pid_ = fork();
  PCHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const auto& [name, value] : environment) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execv(argv[0], argv.data());
    PLOG(ERROR) << "cannot run " << argv[0];
    _exit(127);
  }
  close(ends[1]);
  pipe_ = ends[0];
}

Program::~Program() {
  if (!reaped_) {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(pipe_);
}

bool Program::ReadUntil(const std::string& text, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  while (!absl::StrContains(output_, text)) {
    if (!ReadMore(deadline)) return false;
  }
  return true;
}

void Program::Signal(int signal) {
  if (!reaped_) kill(pid_, signal);
}

int Program::Wait(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  while (ReadMore(deadline)) {
  }
  // The output ends with the program: no program here passes its output on to a
  // child.
  const bool in_time = WatchedProcess(pid_).IsGoneWithin(
      std::max(deadline - SteadyNow(), absl::ZeroDuration()));
  if (!in_time) Signal(SIGKILL);
  int status = 0;
  PCHECK(waitpid(pid_, &status, 0) == pid_);
  reaped_ = true;
  if (!in_time) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool Program::ReadMore(absl::Time deadline) {
  if (!IsReadableBy(pipe_, deadline)) return false;
  char bytes[4096];
  const ssize_t size = read(pipe_, bytes, sizeof(bytes));
  if (size <= 0) return false;
  output_.append(bytes, size);
  return true;
}

WatchedProcess::WatchedProcess(pid_t pid)
    : fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
  PCHECK(fd_ >= 0 || errno == ESRCH);
}

WatchedProcess::~WatchedProcess() {
  if (fd_ >= 0) close(fd_);
}

bool WatchedProcess::IsGoneWithin(absl::Duration timeout) const {
  return fd_ < 0 || IsReadableBy(fd_, SteadyNow() + timeout);
}

}  // namespace holdfast
