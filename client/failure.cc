// SPDX-License-Identifier: Apache-2.0
#include "client/failure.h"

#include "common/job/job_phase.h"

namespace holdfast {

Failure FailureOf(const absl::Status& error, const Cluster& cluster) {
  switch (error.code()) {
    case absl::StatusCode::kAborted:
      if (cluster.state().phase() == proto::FAILED) return Failure::kJobFailed;
      if (cluster.state().phase() == proto::STOPPED) {
        return Failure::kJobStopped;
      }
      return cluster.rolled_back() ? Failure::kRolledBack : Failure::kFenced;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return Failure::kUnavailable;
    case absl::StatusCode::kAlreadyExists:
      return Failure::kRefused;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return Failure::kInvalid;
    case absl::StatusCode::kCancelled:
      return Failure::kCancelled;
    default:
      return Failure::kInternal;
  }
}

bool IsWorkersOwn(const absl::Status& error, const proto::JobState& state) {
  if (IsEnd(state.phase())) return false;
  return absl::IsUnavailable(error) || absl::IsAborted(error);
}

}  // namespace holdfast
