// What may change when a job goes on from its checkpoints, with a job file or a
// script that has been edited (docs/protocol/recovery.md, "With another job
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

// Where the job goes on.
struct ResumePoint {
  // Global steps of its newest checkpoint; asynchronous: pushes.
  uint64_t step = 0;
  // There is a checkpoint, so first values are not needed any more.
  bool has_values = false;
};

struct ResumedDeclaration {
  // `declared`, with the variables of the declaration that stands.
  proto::Declaration declaration;
  // Each field that changes, as "total_steps: 40 -> 80".
  std::vector<std::string> changes;
};

// The declaration with which a job goes on at `at`, for which `stands` was
// declared before, and `declared` is now; both have their defaults filled in.
// Free to change are: the number of steps; learning rates and their schedules;
// evaluation, checkpoints and timeouts; and, where examples are BY_TICKET, the
// number of workers. Where both have a job file, all else in it has to be the
// same, too.
// Errors: ALREADY_EXISTS, with the first field that may not change, from the
// old to the new value; FAILED_PRECONDITION when the job has made more steps
// than `declared` has, or cannot be continued evenly.
absl::StatusOr<ResumedDeclaration> ResumeDeclaration(
    const proto::Declaration& stands, const proto::Declaration& declared,
    const ResumePoint& at);

// The same of the job file alone, where `stands` has one; `job_file` is a
// serialized Job, as in DeclaredJob.
absl::Status CompareJobFiles(const proto::Declaration& stands,
                             const std::string& job_file);
// The same of one as it is written, before anything is computed for it of the
// data: `data` is not compared.
absl::Status CompareWrittenJobFile(const proto::Declaration& stands,
                                   const proto::Job& job);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_RESUMED_DECLARATION_H_
