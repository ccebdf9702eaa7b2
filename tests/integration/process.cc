// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "glog/logging.h"
#include "tests/rpc_threads/rpc_threads.h"

namespace holdfast {
namespace {

std::string OutputPath() {
  static int count = 0;
  const char* directory = std::getenv("TEST_TMPDIR");
  return absl::StrCat(directory == nullptr ? "/tmp" : directory, "/process-",
                      getpid(), "-", count++);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) {
    pointers.push_back(const_cast<char*>(string.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

int MillisecondsUntil(absl::Time when) {
  return static_cast<int>(absl::ToInt64Milliseconds(
      std::max(when - SteadyNow(), absl::ZeroDuration())));
}

// Waits until `fd` is readable. Returns false after `deadline`.
bool AwaitReadable(int fd, absl::Time deadline) {
  pollfd ready = {fd, POLLIN, 0};
  return poll(&ready, 1, MillisecondsUntil(deadline)) == 1;
}

}  // namespace

Process::Process(const std::string& path, const std::vector<std::string>& args,
                 const std::vector<std::string>& env)
    : output_(OutputPath()) {
  std::vector<std::string> argv = {path};
  argv.insert(argv.end(), args.begin(), args.end());
  argv = WithRpcThreads(std::move(argv));
  // If a name occurred twice, the last value would not win.
  std::vector<std::string> environment = env;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.push_back(*entry);
  }

  posix_spawn_file_actions_t files;
  PCHECK(posix_spawn_file_actions_init(&files) == 0);
  PCHECK(posix_spawn_file_actions_addopen(
             &files, STDOUT_FILENO, output_.c_str(),
             O_WRONLY | O_CREAT | O_APPEND, 0600) == 0);
  PCHECK(posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO,
                                          STDERR_FILENO) == 0);
  const int error =
      posix_spawn(&pid_, path.c_str(), &files, nullptr, Pointers(argv).data(),
                  Pointers(environment).data());
  CHECK_EQ(error, 0) << path << ": " << strerror(error);
  posix_spawn_file_actions_destroy(&files);
}

Process::~Process() {
  if (exit_code_ >= 0) return;
  Signal(SIGKILL);
  Wait(absl::Seconds(30));
}

void Process::Signal(int signal) {
  if (exit_code_ < 0) kill(pid_, signal);
}

int Process::Wait(absl::Duration patience) {
  if (exit_code_ >= 0) return exit_code_;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  PCHECK(fd >= 0);
  const bool ended = AwaitReadable(fd, SteadyNow() + patience);
  close(fd);
  if (!ended) return -1;
  int status = 0;
  PCHECK(waitpid(pid_, &status, 0) == pid_);
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

std::string Process::Output() const {
  std::ifstream file(output_);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Process::AwaitOutput(const std::string& text, absl::Duration patience) {
  const absl::Time deadline = SteadyNow() + patience;
  // Watches the file before reading it, so that no change is missed.
  const int fd = inotify_init1(IN_CLOEXEC);
  PCHECK(fd >= 0);
  // The file exists: the spawn creates it before it returns.
  PCHECK(inotify_add_watch(fd, output_.c_str(), IN_MODIFY) >= 0);
  bool found;
  while (!(found = absl::StrContains(Output(), text)) &&
         AwaitReadable(fd, deadline)) {
    char events[4096];
    PCHECK(read(fd, events, sizeof(events)) > 0);
  }
  close(fd);
  return found;
}

}  // namespace holdfast
