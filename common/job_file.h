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
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
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

// The names of all `layers`, given or by default: the kind and the count of its
// kind before it, as "dense", "dense_1". Layers within layers have theirs by
// themselves.
std::vector<std::string> LayerNames(
    const google::protobuf::RepeatedPtrField<proto::Layer>& layers);

// How the gradients and values of the variables with these names travel, by
// name; as in proto::Variable. Errors: INVALID_ARGUMENT when a rule names none
// of them, which is a slip.
absl::StatusOr<std::vector<proto::Compression>> ResolveCompression(
    const proto::Job& job, absl::Span<const std::string> names);

// How a job's pushes become steps, and whose examples are whose, on a cluster
// of so many workers; with defaults filled in.
struct Replicas {
  // N, the gradients that make a step. 0 in an asynchronous job, where every
  // push is a step of its own.
  uint32_t to_aggregate = 0;
  // M, the workers that there may be, the chief included.
  uint32_t total = 0;

  bool asynchronous = false;
  // Asynchronous: pushes that a worker may have begun and not finished.
  uint32_t pipeline_depth = 1;
  // Asynchronous: pushes that a worker may be ahead of the slowest. Absent:
  // any number.
  std::optional<uint32_t> staleness_bound;

  // BY_STEP or BY_TICKET; BY_TICKET in an asynchronous job.
  proto::ExampleAssignment examples = proto::BY_STEP;

  // max(N, M), the contributions that a step of a synchronous job has room for.
  uint32_t seats() const { return to_aggregate > total ? to_aggregate : total; }
  bool by_ticket() const { return examples == proto::BY_TICKET; }
  // By ticket.
  uint32_t tickets_per_step() const { return asynchronous ? 1 : to_aggregate; }
};

// The same of `job`, which is valid, on a cluster of `workers`, the chief
// included. Where lost workers are gone on without, M is max_workers.
// Errors: INVALID_ARGUMENT, naming both numbers and which to change, when
// total_num_replicas is not M, N is above M where lost workers are gone on
// without, max_workers is less than `workers`, or min_replicas above
// max_workers; when there are no workers; when short last batches by step meet
// backup replicas; when examples by step meet workers beyond the cluster.
absl::StatusOr<Replicas> ResolveConsistency(const proto::Job& job,
                                            uint32_t workers);

// The job's length over `num_examples` to train on, as the declaration says it.
// `epochs` are rounded up to whole batches, or, where the examples are BY_STEP,
// to whole steps; every epoch by itself with data.short_last_batch
// (worker/input/batch_ranges.h).
//
// Tickets to hand out, one for each batch; from 1 to 1e18. Asynchronous:
// `steps` of them; synchronous: `steps` x N. 0 where the examples are BY_STEP.
uint64_t TotalTickets(const proto::Job& job, uint64_t num_examples,
                      const Replicas& replicas);
// Global steps; from 1 to 1e15. BY_TICKET: as many as the tickets make.
uint64_t TotalSteps(const proto::Job& job, uint64_t num_examples,
                    const Replicas& replicas);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_FILE_H_
