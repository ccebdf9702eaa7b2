#ifndef HOLDFAST_CLI_SIGNAL_WATCH_H_
#define HOLDFAST_CLI_SIGNAL_WATCH_H_

#include <signal.h>

#include <set>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace holdfast {

// Waits for signals as for any other event. While it lives, SIGCHLD and those
// by which a user ends a program (SIGINT, SIGTERM, SIGHUP) do nothing but show
// here.
//
// Make it before any other thread is started: the signals must be blocked in
// all of them. Thread-compatible.
class SignalWatch {
 public:
  // `more`: watched beside those.
  explicit SignalWatch(const std::set<int>& more = {});
  ~SignalWatch();

  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Waits until a signal has come, `fd` (-1: none) is readable, or `deadline`
  // is there. The signals that have come since the last call.
  std::set<int> Wait(int fd, absl::Time deadline);
  // The same with several.
  std::set<int> Wait(absl::Span<const int> fds, absl::Time deadline);

 private:
  const sigset_t watched_;
  int signals_;  // a signalfd
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_SIGNAL_WATCH_H_
