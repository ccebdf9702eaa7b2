// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_FAILURE_H_
#define HOLDFAST_CLIENT_FAILURE_H_

#include "absl/status/status.h"
#include "client/cluster.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// What an error returned by a Cluster means for the worker.
enum class Failure {
  // The caller's mistake.
  kInvalid,
  // The caller has cancelled the call.
  kCancelled,
  // The job rolled back to an earlier state, and continues.
  kRolledBack,
  // This worker was fenced.
  kFenced,
  kJobFailed,
  // An operator has stopped the job; it continues when it is started again.
  kJobStopped,
  // A task cannot be reached, or a wait timed out.
  kUnavailable,
  // The request contradicts what the cluster already has.
  kRefused,
  // A ps sent an impossible answer.
  kInternal,
};

Failure FailureOf(const absl::Status& error, const Cluster& cluster);

// Whether `error`, with which a worker ends while the job is in `state`,
// concerns only this worker: it was fenced, or cannot reach a ps or the
// coordinator. Then a replacement, or the same worker after a restart, may
// continue. Any other error concerns the job, and ends it.
bool IsWorkersOwn(const absl::Status& error, const proto::JobState& state);

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_FAILURE_H_
