// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_BACKOFF_H_
#define HOLDFAST_COMMON_RPC_BACKOFF_H_

#include <algorithm>

#include "absl/random/bit_gen_ref.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace holdfast {

// Whether a call that failed with `status` may succeed when it is sent again:
// UNAVAILABLE (no connection), DEADLINE_EXCEEDED (no answer), and CANCELLED (a
// server that shuts down answers its parked calls with it). Every call in
// proto/ is safe to repeat.
inline bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

// Says how long to wait before a call is sent again. The longest wait doubles
// from `first` up to `max`, and each wait is drawn at random from its upper
// half, so that tasks that lost the same peer do not all come back at once.
//
// Thread-compatible.
class Backoff {
 public:
  explicit Backoff(absl::Duration first = absl::Milliseconds(20),
                   absl::Duration max = absl::Seconds(1))
      : first_(first), max_(max), bound_(first) {}

  // Returns the next wait, uniformly random in [bound / 2, bound], where bound
  // is first, 2 first, 4 first, ... max.
  absl::Duration Next(absl::BitGenRef random) {
    const absl::Duration bound = bound_;
    bound_ = std::min(2 * bound_, max_);
    return bound * absl::Uniform(random, 0.5, 1.0);
  }
  // Makes `first` the next bound. Call it after a success.
  void Reset() { bound_ = first_; }

 private:
  const absl::Duration first_;
  const absl::Duration max_;
  absl::Duration bound_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_BACKOFF_H_
