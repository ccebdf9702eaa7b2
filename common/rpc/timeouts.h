// SPDX-License-Identifier: Apache-2.0

// How long a job waits: the values of its Timeouts, and their defaults.
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_RPC_TIMEOUTS_H_
#define HOLDFAST_COMMON_RPC_TIMEOUTS_H_

#include "absl/time/time.h"
#include "proto/training.pb.h"

namespace holdfast {

// The default of every field of proto::Timeouts.
inline constexpr absl::Duration kDefaultTimeout = absl::Seconds(300);

// Each function below returns the value of one field, or `otherwise` if the
// field is not set.
inline absl::Duration StartTimeout(const proto::Timeouts& timeouts,
                                   absl::Duration otherwise = kDefaultTimeout) {
  return timeouts.has_start_seconds() ? absl::Seconds(timeouts.start_seconds())
                                      : otherwise;
}
inline absl::Duration StepTimeout(const proto::Timeouts& timeouts,
                                  absl::Duration otherwise = kDefaultTimeout) {
  return timeouts.has_step_seconds() ? absl::Seconds(timeouts.step_seconds())
                                     : otherwise;
}
inline absl::Duration RecoveryTimeout(
    const proto::Timeouts& timeouts,
    absl::Duration otherwise = kDefaultTimeout) {
  return timeouts.has_recovery_seconds()
             ? absl::Seconds(timeouts.recovery_seconds())
             : otherwise;
}
inline absl::Duration DiskTimeout(const proto::Timeouts& timeouts,
                                  absl::Duration otherwise = kDefaultTimeout) {
  return timeouts.has_disk_seconds() ? absl::Seconds(timeouts.disk_seconds())
                                     : otherwise;
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_TIMEOUTS_H_
