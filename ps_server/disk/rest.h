// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_DISK_REST_H_
#define HOLDFAST_PS_SERVER_DISK_REST_H_

#include <memory>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/strand.h"

namespace holdfast {

// Waits until the strand has run all tasks posted to it, or until `deadline` on
// the steady clock, and returns whether it has. No other thread may post to the
// strand meanwhile.
inline bool ComesToRest(Strand* strand, absl::Time deadline) {
  auto rests = std::make_shared<absl::Notification>();
  strand->Post([rests] { rests->Notify(); });
  return rests->WaitForNotificationWithTimeout(deadline - SteadyNow());
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_REST_H_
