// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_REPEATED_FAILURE_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_REPEATED_FAILURE_H_

#include <algorithm>

#include "absl/time/time.h"

namespace holdfast {

// Distinguishes a persistent failure from a transient one: decides how long a
// file may be unreadable before it counts as damaged.
//
// Thread-compatible.
class RepeatedFailure {
 public:
  static constexpr int kLeastTimes = 3;
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  // Counts another failure. Returns true if there have been at least
  // kLeastTimes failures since Clear, and the first of them was long enough
  // ago: kPatience, or a quarter of `limit` if that is shorter.
  bool Count(absl::Time now, absl::Duration limit) {
    if (times_++ == 0) since_ = now;
    return times_ >= kLeastTimes &&
           now - since_ >= std::min(kPatience, limit / 4);
  }
  // Forgets all failures, because an attempt has succeeded.
  void Clear() { times_ = 0; }

  int times() const { return times_; }

 private:
  int times_ = 0;
  absl::Time since_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_REPEATED_FAILURE_H_
