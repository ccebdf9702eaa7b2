// The job file: what is trained, on what, and how; a textproto of
// proto/job.proto. docs/job_file.md tells it with examples.
//
// Rules of validity: those that hold for any message are told in
// common/base/validate.h; those between the fields of a job stand in
// job_file.cc, but for those of its data (common/job/job_data_rules.h), and
// those that hold for a declaration as well (common/job/consistency_rules.h).
//
// Pure functions but for LoadJobFile, which reads its file; safe from any
// thread.
#ifndef HOLDFAST_COMMON_JOB_JOB_FILE_H_
#define HOLDFAST_COMMON_JOB_JOB_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/job/consistency_rules.h"
#include "common/job/example_order.h"
#include "proto/cluster.pb.h"
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

// What workers must agree on, serialized: the whole job but for `local` and the
// data's paths, since data may lie elsewhere on each machine and have a digest
// of their own. Equal jobs give equal bytes.
std::string SharedJob(const proto::Job& job);

// SHA-256 of that, in hexadecimal.
std::string JobDigest(const proto::Job& job);

// The job that workers with a job file have declared, without paths of data.
// Errors: NOT_FOUND when they had none; DATA_LOSS.
absl::StatusOr<proto::Job> DeclaredJobFile(
    const proto::Declaration& declaration);

// Whether it leaves something to the training set, as a field `computed` says.
bool IsComputed(const proto::CsvColumn& column);
bool IsComputed(const proto::TfRecordFeature& feature);

// The paths that `dataset` names.
std::vector<std::string*> DataPaths(proto::Dataset* dataset);

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

// The order of examples that the job says.
Shuffle ShuffleOf(const proto::Data& data);

// How the pushes of `job`, which is valid, become steps on a cluster of
// `workers`, the chief included.
// Errors: INVALID_ARGUMENT as in common/job/consistency_rules.h, and when short
// last batches by step meet backup replicas.
absl::StatusOr<Replicas> ResolveConsistency(const proto::Job& job,
                                            uint32_t workers);

// The job's length over `num_examples` to train on, as the declaration says it.
// `epochs` are rounded up to whole batches, or, where the examples are BY_STEP,
// to whole steps; every epoch by itself with data.short_last_batch
// (common/job/batch_ranges.h).
//
// Tickets to hand out, one for each batch; from 1 to 1e18. Asynchronous:
// `steps` of them; synchronous: `steps` x N. 0 where the examples are BY_STEP.
uint64_t TotalTickets(const proto::Job& job, uint64_t num_examples,
                      const Replicas& replicas);
// Global steps; from 1 to 1e15. BY_TICKET: as many as the tickets make.
uint64_t TotalSteps(const proto::Job& job, uint64_t num_examples,
                    const Replicas& replicas);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_JOB_FILE_H_
