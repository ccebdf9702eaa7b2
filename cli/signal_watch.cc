#include "cli/signal_watch.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "common/clock.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

sigset_t Watched() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&set, signal);
  }
  return set;
}

// For poll(2), rounded up so that the deadline has passed when it returns.
int MillisecondsUntil(absl::Time deadline) {
  const absl::Duration left = absl::Ceil(
      std::clamp(deadline - SteadyNow(), absl::ZeroDuration(), absl::Hours(1)),
      absl::Milliseconds(1));
  return static_cast<int>(absl::ToInt64Milliseconds(left));
}

}  // namespace

SignalWatch::SignalWatch() {
  const sigset_t watched = Watched();
  PCHECK(pthread_sigmask(SIG_BLOCK, &watched, nullptr) == 0);
  signals_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  PCHECK(signals_ >= 0);
}

SignalWatch::~SignalWatch() {
  close(signals_);
  const sigset_t watched = Watched();
  pthread_sigmask(SIG_UNBLOCK, &watched, nullptr);
}

std::set<int> SignalWatch::Wait(int fd, absl::Time deadline) {
  pollfd fds[] = {{signals_, POLLIN, 0}, {fd, POLLIN, 0}};
  poll(fds, 2, MillisecondsUntil(deadline));
  std::set<int> signals;
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    signals.insert(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

}  // namespace holdfast
