#ifndef HOLDFAST_COMMON_RPC_BUSY_POLL_H_
#define HOLDFAST_COMMON_RPC_BUSY_POLL_H_

#include <algorithm>
#include <atomic>

#include "absl/time/time.h"

namespace holdfast {

// Which waits look for what they wait for again and again, for a short while,
// before they sleep. Who sleeps has to be woken, and a core that rests takes
// some 50 us to come back: as long as the rest of a small call.
//
// One that comes in vain costs time that others may want, so it is followed by
// waits that sleep at once: one, and twice as many and one more with each in
// vain that follows, up to kMostSkipped. So little is lost where answers take
// long, or where there are more threads than cores; the first that is not in
// vain begins anew.
//
// Thread-safe; threads that wait for the same things share one.
class BusyPoll {
 public:
  // Longer than a small call takes where the other side sleeps: else two sides
  // that both sleep would never find out that neither has to.
  static constexpr absl::Duration kLength = absl::Microseconds(200);
  static constexpr int kMostSkipped = 127;

  // Whether this wait may look before it sleeps.
  bool May() {
    const int left = left_.load(std::memory_order_relaxed);
    if (left == 0) return true;
    left_.store(left - 1, std::memory_order_relaxed);
    return false;
  }

  // How it went.
  void Tell(bool in_vain) {
    const int skipped = skipped_.load(std::memory_order_relaxed);
    const int next = in_vain ? std::min(2 * skipped + 1, kMostSkipped) : 0;
    skipped_.store(next, std::memory_order_relaxed);
    left_.store(next, std::memory_order_relaxed);
  }

 private:
  // After the last in vain, and of these how many are to come.
  std::atomic<int> skipped_{0};
  std::atomic<int> left_{0};
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_BUSY_POLL_H_
