// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_DEADLINE_H_
#define HOLDFAST_COMMON_RPC_DEADLINE_H_

#include <grpc/support/time.h>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace holdfast {

// Converts a deadline of the steady clock (common/base/clock.h) for gRPC, which
// accepts the result wherever it accepts a time_point of the system clock.
inline gpr_timespec GrpcDeadline(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) {
    return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  }
  const int64_t left = absl::ToInt64Nanoseconds(deadline - SteadyNow());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(left, GPR_TIMESPAN));
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_DEADLINE_H_
