#ifndef HOLDFAST_PS_SERVER_DISK_REST_H_
#define HOLDFAST_PS_SERVER_DISK_REST_H_

#include <memory>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/strand.h"

namespace holdfast {

// Whether the strand has done all that it was given by `deadline`, of the
// steady clock. Nobody else may post to it meanwhile.
inline bool ComesToRest(Strand* strand, absl::Time deadline) {
  auto rests = std::make_shared<absl::Notification>();
  strand->Post([rests] { rests->Notify(); });
  return rests->WaitForNotificationWithTimeout(deadline - SteadyNow());
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_REST_H_
