#ifndef HOLDFAST_CLIENT_FAILURE_H_
#define HOLDFAST_CLIENT_FAILURE_H_

#include "absl/status/status.h"
#include "client/cluster.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// What an error of a Cluster means for the worker.
enum class Failure {
  // The caller's mistake.
  kInvalid,
  // The caller has cancelled it.
  kCancelled,
  // The job went back to an earlier state, and goes on.
  kRolledBack,
  // This worker was shut out.
  kFenced,
  kJobFailed,
  // An operator has stopped the job; it can be started again, and goes on.
  kJobStopped,
  // A task is out of reach, or what was waited for did not come.
  kUnavailable,
  // It contradicts what stands in the cluster.
  kRefused,
  // A ps answered what cannot be.
  kInternal,
};

Failure FailureOf(const absl::Status& error, const Cluster& cluster);

// Whether `error`, with which a worker ends while the job is as `state` says,
// leaves the job as it is: the worker was shut out, or ps or coordinator are
// out of its reach. Another in its place, or itself started again, may go on.
// Any other error is the job's own, and ends it.
bool IsWorkersOwn(const absl::Status& error, const proto::JobState& state);

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_FAILURE_H_
