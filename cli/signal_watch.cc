// SPDX-License-Identifier: Apache-2.0
#include "cli/signal_watch.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

sigset_t SetOf(const std::set<int>& more) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&set, signal);
  }
  for (const int signal : more) sigaddset(&set, signal);
  return set;
}

// For poll(2). Rounded up so that the deadline has passed when poll returns.
int MillisecondsUntil(absl::Time deadline) {
  const absl::Duration left = absl::Ceil(
      std::clamp(deadline - SteadyNow(), absl::ZeroDuration(), absl::Hours(1)),
      absl::Milliseconds(1));
  return static_cast<int>(absl::ToInt64Milliseconds(left));
}

}  // namespace

SignalWatch::SignalWatch(const std::set<int>& more) : watched_(SetOf(more)) {
  PCHECK(pthread_sigmask(SIG_BLOCK, &watched_, nullptr) == 0);
  signals_ = signalfd(-1, &watched_, SFD_CLOEXEC | SFD_NONBLOCK);
  PCHECK(signals_ >= 0);
}

SignalWatch::~SignalWatch() {
  close(signals_);
  pthread_sigmask(SIG_UNBLOCK, &watched_, nullptr);
}

std::set<int> SignalWatch::Wait(int fd, absl::Time deadline) {
  return Wait(absl::MakeConstSpan(&fd, 1), deadline);
}

std::set<int> SignalWatch::Wait(absl::Span<const int> fds,
                                absl::Time deadline) {
  std::vector<pollfd> polled = {{signals_, POLLIN, 0}};
  for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
  poll(polled.data(), polled.size(), MillisecondsUntil(deadline));
  std::set<int> signals;
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    signals.insert(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

}  // namespace holdfast
