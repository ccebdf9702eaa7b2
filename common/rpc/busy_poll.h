// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_BUSY_POLL_H_
#define HOLDFAST_COMMON_RPC_BUSY_POLL_H_

#include <algorithm>
#include <atomic>

#include "absl/time/time.h"

namespace holdfast {

// Decides which waits poll briefly before they sleep. A sleeping thread has to
// be woken, and an idle core takes some 50 us to resume work, which is as long
// as the rest of a small call takes.
//
// A poll that finds nothing costs time that other threads may want, so after it
// some waits sleep at once: one wait after the first fruitless poll, and after
// each further one twice as many plus one, up to kMostSkipped. So little time
// is lost if answers take long, or if there are more threads than cores. The
// first successful poll resets the count.
//
// Thread-safe; threads that wait for the same events share one.
class BusyPoll {
 public:
  // How long to poll: longer than a call with a megabyte takes while the other
  // side sleeps. If it were shorter, two sides that both sleep would never find
  // out that neither needs to.
  static constexpr absl::Duration kLength = absl::Microseconds(400);
  static constexpr int kMostSkipped = 127;

  // Whether this wait may poll before it sleeps.
  bool May() {
    const int left = left_.load(std::memory_order_relaxed);
    if (left == 0) return true;
    left_.store(left - 1, std::memory_order_relaxed);
    return false;
  }

  // Reports the outcome of a poll; `in_vain` says that it found nothing.
  void Tell(bool in_vain) {
    const int skipped = skipped_.load(std::memory_order_relaxed);
    const int next = in_vain ? std::min(2 * skipped + 1, kMostSkipped) : 0;
    skipped_.store(next, std::memory_order_relaxed);
    left_.store(next, std::memory_order_relaxed);
  }

 private:
  // How many waits to skip after the last fruitless poll, and how many of these
  // are left.
  std::atomic<int> skipped_{0};
  std::atomic<int> left_{0};
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_BUSY_POLL_H_
