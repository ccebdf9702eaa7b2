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

// Fills in those fields of the data of `job` that are computed from the
// training set (common/data/computed_fields.h), so that all workers of the job,
// and all its checkpoints, have the same values in them.
//
// Fields that are `computed` are computed once in the life of a job, by the
// chief, before it declares the job; all others take them from the declared
// job. `declared`, which is called only if there are such fields, waits until
// the job is declared and returns the declared job; to the chief of a job that
// has not been declared yet it returns nullopt. The classes of images are
// listed by each worker itself; the comparison of data digests makes sure that
// the lists agree.
// Errors: those of `declared`, FillInComputedFields, CopyOpenFields and
// FillInImageClasses; INVALID_ARGUMENT if a declaration cannot hold so many
// values.
absl::Status ResolveJob(
    const std::function<absl::StatusOr<std::optional<proto::Job>>()>& declared,
    const DataOptions& reading, proto::Job* job);

// Does the same for a process that is not a worker of the job: takes the fields
// from `declared`, except for the classes of images, which `declared` may lack:
// these are then listed from the training set.
absl::Status ResolveFrom(const proto::Job& declared, proto::Job* job);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_JOB_RESOLUTION_H_
