// The job file: what is trained, on what, and how; a textproto of
// proto/job.proto. docs/job_file.md tells it with examples.
//
// Rules of validity stand in two places: those of one field beside the field,
// as options in the proto (proto/rules.proto); those between fields in one
// table in job_file.cc. Besides, every float must be finite and every enum
// value known.
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
#include "google/protobuf/message.h"
#include "proto/job.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// The job in `text`, whole and valid, with relative data paths resolved against
// the folder of `filename`.
// Errors: INVALID_ARGUMENT with a line for each problem, in the order of the
// file, and at most 20 of them:
//   job.textproto:12:5: model.sequential.layers[2].dense: no field named "unit"
//   job.textproto:31: optimizer.learning_rate: must be above 0, is -1
// A file that cannot be read as a Job is not tested against the rules.
absl::StatusOr<proto::Job> ParseJobFile(absl::string_view text,
                                        absl::string_view filename);

// The same, of the file at `path`.
// Errors: NOT_FOUND when it cannot be read; INVALID_ARGUMENT when it is longer
// than 1 MiB, and as ParseJobFile.
absl::StatusOr<proto::Job> LoadJobFile(const std::string& path);

// Tests any message of proto/ against the rules, its submessages included.
// Errors: INVALID_ARGUMENT, naming the message's type and each problem by its
// path, 20 at most: `PushRequest: sender.task: must be set; num_parts: must be
// at least 1, is 0`.
absl::Status ValidateMessage(const google::protobuf::Message& message);

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
