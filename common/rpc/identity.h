#ifndef HOLDFAST_COMMON_RPC_IDENTITY_H_
#define HOLDFAST_COMMON_RPC_IDENTITY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/task_id.h"

namespace holdfast {

// In a certificate, in place of a job of the ClusterSpec: a person or a tool
// that watches a job and has it saved.
inline constexpr char kOperatorJob[] = "operator";
// In a Sender, one that is in no job and only reads: what an operator is.
inline constexpr char kClientJob[] = "client";

// Whom a certificate belongs to. In it stands, as one of its subject's
// alternative names, the URI
//
//   holdfast://TRAINING/JOB/INDEX    as holdfast://mnist/worker/1
//
// JOB is "ps", "worker", "chief", "evaluator" or "operator". TRAINING tells
// apart what one certificate authority is used for: tasks speak only to those
// of their own.
struct Identity {
  std::string training;
  TaskId task;

  std::string ToUri() const;

  friend bool operator==(const Identity& a, const Identity& b) {
    return a.training == b.training && a.task == b.task;
  }
};

// Errors: INVALID_ARGUMENT, naming the name, where it has other characters than
// lower-case letters, digits and '-', begins or ends with '-', or is not 1 to
// 63 of them long: what fits into the name of a host.
absl::Status CheckTrainingName(absl::string_view name);

// Whether `uri` says that it is an identity, be it a right one or not.
bool IsIdentityUri(absl::string_view uri);

// Errors: INVALID_ARGUMENT, with the URI, when it is no identity.
absl::StatusOr<Identity> ParseIdentity(absl::string_view uri);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_IDENTITY_H_
