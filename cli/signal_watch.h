// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_SIGNAL_WATCH_H_
#define HOLDFAST_CLI_SIGNAL_WATCH_H_

#include <signal.h>

#include <set>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace holdfast {

// Waits for signals as for any other event. While a SignalWatch exists, SIGCHLD
// and the signals with which a user ends a program (SIGINT, SIGTERM, SIGHUP)
// have no effect except that Wait returns them.
//
// Must be created before any other thread is started, because the signals must
// be blocked in all threads. Thread-compatible.
class SignalWatch {
 public:
  // Also watches the signals in `more`.
  explicit SignalWatch(const std::set<int>& more = {});
  ~SignalWatch();

  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Waits until a signal has arrived, `fd` (-1: none) is readable, or
  // `deadline` has passed. Returns the signals that have arrived since the last
  // call.
  std::set<int> Wait(int fd, absl::Time deadline);
  // Waits in the same way, but for any of several descriptors.
  std::set<int> Wait(absl::Span<const int> fds, absl::Time deadline);

 private:
  const sigset_t watched_;
  int signals_;  // a signalfd
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_SIGNAL_WATCH_H_
