#ifndef HOLDFAST_WORKER_JOB_RESOLUTION_H_
#define HOLDFAST_WORKER_JOB_RESOLUTION_H_

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/job_data.h"

namespace holdfast {

// Fills in what the data of `job` leave to their training set
// (common/data/computed_fields.h), so that all workers of the job, and all
// checkpoints, have the same.
//
// What is `computed` is computed once in the life of a job, by whoever finds
// that none was declared yet. `declared`, asked only where something is
// computed, tells which job was declared, and waits until one is; only for the
// chief of a job that has not begun it tells that none is. Classes of images
// each worker lists by itself; digests of data hold them to the same.
// Errors: those of `declared`, FillInComputedFields, CopyOpenFields and
// FillInImageClasses; INVALID_ARGUMENT where values are too many for a
// declaration.
absl::Status ResolveJob(
    const std::function<absl::StatusOr<std::optional<proto::Job>>()>& declared,
    const DataOptions& reading, proto::Job* job);

// The same for whoever has no part in the job: as `declared` has it, or, of
// classes of images alone, from the training set.
absl::Status ResolveFrom(const proto::Job& declared, proto::Job* job);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_JOB_RESOLUTION_H_
