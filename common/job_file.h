// The job file: what is trained, on what, and how; a textproto of
// proto/job.proto. docs/job_file.md tells it with examples.
//
// Rules of validity: those that hold for any message are told in
// common/validate.h; those between the fields of a job stand in job_file.cc.
//
// Pure functions but for LoadJobFile, which reads its file; safe from any
// thread.
#ifndef HOLDFAST_COMMON_JOB_FILE_H_
#define HOLDFAST_COMMON_JOB_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// The job in `text`, whole and valid, with relative data paths resolved against
// the folder of `filename`.
// Errors: INVALID_ARGUMENT, with file and line. Where `text` cannot be read as
// a Job, the first fault, in protobuf's words:
//   job.textproto:12:5: Message type "..." has no field named "unit".
// or else a line for each rule that it breaks, in the order of the file, and at
// most 20 of them; a field that is missing has the line of the message around
// it:
//   job.textproto:31: optimizer.learning_rate: must be above 0, is -1
absl::StatusOr<proto::Job> ParseJobFile(absl::string_view text,
                                        absl::string_view filename);

// The same, of the file at `path`.
// Errors: NOT_FOUND when it cannot be read; INVALID_ARGUMENT when it is longer
// than 1 MiB, and as ParseJobFile.
absl::StatusOr<proto::Job> LoadJobFile(const std::string& path);

// SHA-256, in hexadecimal, of what workers must agree on: the whole job but for
// `local` and the data's paths, since data may lie elsewhere on each machine
// and have a digest of their own.
std::string JobDigest(const proto::Job& job);

// The names of all layers, given or by default: the kind and the count of its
// kind before it, as "dense", "dense_1".
std::vector<std::string> LayerNames(const proto::Sequential& model);

// The job's length in global steps: `steps`, or `epochs` passes over
// `num_examples` in steps of `seats` batches, rounded up; from 1 to 1e15.
// `seats` is at least 1.
uint64_t TotalSteps(const proto::Job& job, uint64_t num_examples,
                    uint32_t seats);

// N and M of a job, with defaults filled in.
struct Replicas {
  // N, the gradients that make a step.
  uint32_t to_aggregate = 0;
  // M, the workers. N <= M, or a multiple of it.
  uint32_t total = 0;

  // max(N, M), the contributions that a step has room for.
  uint32_t seats() const { return to_aggregate > total ? to_aggregate : total; }
};

// N and M on a cluster of `replicas` workers, the chief included.
// Errors: INVALID_ARGUMENT, naming both numbers and which to change, when
// total_num_replicas is not `replicas`, or N is above M and no multiple of it.
absl::StatusOr<Replicas> ResolveConsistency(
    const proto::Consistency& consistency, uint32_t replicas);
absl::StatusOr<Replicas> ResolveConsistency(const proto::Job& job,
                                            uint32_t replicas);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_FILE_H_
