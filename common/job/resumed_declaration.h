// SPDX-License-Identifier: Apache-2.0

// Which changes are allowed when a job continues from its checkpoints with an
// edited job file or script (docs/protocol/recovery.md, "With another job
// file").
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_JOB_RESUMED_DECLARATION_H_
#define HOLDFAST_COMMON_JOB_RESUMED_DECLARATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"

namespace holdfast {

// The point from which the job continues.
struct ResumePoint {
  // The global step of its newest checkpoint; in an asynchronous job, the
  // number of pushes.
  uint64_t step = 0;
  // Whether there is a checkpoint, so that first values are no longer needed.
  bool has_values = false;
};

struct ResumedDeclaration {
  // `declared`, with the variables and the agreed facts of the existing
  // declaration.
  proto::Declaration declaration;
  // Each field that changes, such as "total_steps: 40 -> 80".
  std::vector<std::string> changes;
};

// The declaration with which a job continues at `at`: `stands` is the existing
// declaration and `declared` the new one, both with their defaults filled in.
// These may change: the number of steps; learning rates and their schedules;
// evaluation, checkpoints and timeouts; and, if examples are BY_TICKET, the
// number of workers. If both have a job file, the rest of it must be the same,
// too. Agreed facts are not compared: see CheckAgreed.
// Errors: ALREADY_EXISTS, with the first field that may not change, from the
// old to the new value; FAILED_PRECONDITION when the job has made more steps
// than `declared` has, has more tickets, or ended with an incomplete step.
absl::StatusOr<ResumedDeclaration> ResumeDeclaration(
    const proto::Declaration& stands, const proto::Declaration& declared,
    const ResumePoint& at);

// Makes the comparison of ResumeDeclaration for the job file alone, if `stands`
// has one. `job_file` is a serialized Job, as in proto::DeclaredJob.
absl::Status CompareJobFiles(const proto::Declaration& stands,
                             const std::string& job_file);
// Like CompareJobFiles, for a job file as the user wrote it, in which no values
// have been computed from the data; its `data` is not compared.
absl::Status CompareWrittenJobFile(const proto::Declaration& stands,
                                   const proto::Job& job);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_RESUMED_DECLARATION_H_
