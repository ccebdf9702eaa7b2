// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_JOB_RESOLUTION_H_
#define HOLDFAST_WORKER_JOB_RESOLUTION_H_

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/job_data.h"

namespace holdfast {

// Fills in the fields that the data of `job` leave to be computed from the
// training set (common/data/computed_fields.h), so that all workers of the job,
// and all checkpoints, have the same values.
//
// Fields that are `computed` are computed once in the life of a job, by the
// chief of a job that has not been declared yet. `declared`, called only if
// there are such fields, returns the declared job, and waits until there is
// one; it returns nullopt only to the chief of a job that has not begun. Each
// worker lists the classes of images itself; the comparison of data digests
// makes sure that the lists agree.
// Errors: those of `declared`, FillInComputedFields, CopyOpenFields and
// FillInImageClasses; INVALID_ARGUMENT if there are too many values for a
// declaration.
absl::Status ResolveJob(
    const std::function<absl::StatusOr<std::optional<proto::Job>>()>& declared,
    const DataOptions& reading, proto::Job* job);

// The same for a process that is not a worker of the job: takes the fields from
// `declared` or, for classes of images alone, from the training set.
absl::Status ResolveFrom(const proto::Job& declared, proto::Job* job);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_JOB_RESOLUTION_H_
