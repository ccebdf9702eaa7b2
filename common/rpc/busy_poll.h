// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_BUSY_POLL_H_
#define HOLDFAST_COMMON_RPC_BUSY_POLL_H_

#include <algorithm>
#include <atomic>

#include "absl/time/time.h"

namespace holdfast {

// Decides which waits poll briefly before they sleep. A sleeping thread has to
// be woken, and an idle core takes some 50 us to come back: as long as the rest
// of a small call.
//
// A poll that finds nothing costs time that other threads may want, so the
// waits after it sleep at once: the first time one wait, and after each further
// fruitless poll twice as many plus one, up to kMostSkipped. So little is lost
// where answers take long, or where there are more threads than cores. The
// first successful poll resets the count.
//
// Thread-safe; threads that wait for the same events share one.
class BusyPoll {
 public:
  // Longer than a small call takes when the other side sleeps. If it were
  // shorter, two sides that both sleep would never find out that neither has
  // to.
  static constexpr absl::Duration kLength = absl::Microseconds(200);
  static constexpr int kMostSkipped = 127;

  // Whether this wait may poll before it sleeps.
  bool May() {
    const int left = left_.load(std::memory_order_relaxed);
    if (left == 0) return true;
    left_.store(left - 1, std::memory_order_relaxed);
    return false;
  }

  // Reports the outcome of a poll.
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
