// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_IDENTITY_H_
#define HOLDFAST_COMMON_RPC_IDENTITY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/task_id.h"

namespace holdfast {

// The JOB of an Identity that belongs to no task, but to a person or a tool
// that watches a job and may have it save checkpoints.
inline constexpr char kOperatorJob[] = "operator";
// The job in the Sender of a process, such as an operator's, that is not a task
// of the cluster and only reads.
inline constexpr char kClientJob[] = "client";

// The owner of a certificate, which has as one of its subject alternative names
// the URI
//
//   holdfast://TRAINING/JOB/INDEX    such as holdfast://mnist/worker/1
//
// JOB is "ps", "worker", "chief", "evaluator" or "operator". TRAINING
// distinguishes the uses of one certificate authority: tasks talk only to tasks
// of the same training.
struct Identity {
  std::string training;
  TaskId task;

  std::string ToUri() const;

  friend bool operator==(const Identity& a, const Identity& b) {
    return a.training == b.training && a.task == b.task;
  }
};

// Checks that `name` can be part of a host name: 1 to 63 lower-case letters,
// digits and '-', neither beginning nor ending with '-'.
// Errors: INVALID_ARGUMENT, with the name.
absl::Status CheckTrainingName(absl::string_view name);

// Whether `uri` claims to be an identity, valid or not.
bool IsIdentityUri(absl::string_view uri);

// Errors: INVALID_ARGUMENT, with the URI, when it is not a valid identity.
absl::StatusOr<Identity> ParseIdentity(absl::string_view uri);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_IDENTITY_H_
