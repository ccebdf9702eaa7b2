// SPDX-License-Identifier: Apache-2.0

// The job file: what is trained, on which data, and how; a textproto of
// proto/job.proto. docs/job_file.md describes it with examples.
//
// Rules that hold for any message are in common/base/validate.h; rules between
// the fields of a job are in job_file.cc, except those of its data
// (common/job/job_data_rules.h), of its model (common/job/job_model_rules.h),
// and those that also hold for a declaration (common/job/consistency_rules.h).
//
// Pure functions except LoadJobFile, which reads its file; safe from any
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

// Parses and validates the job in `text`. In the result, relative data paths
// are resolved against the folder of `filename`.
// Errors: INVALID_ARGUMENT, with file and line. If `text` does not parse as a
// Job, the first error, in protobuf's words:
//   job.textproto:12:5: Message type "..." has no field named "unit".
// or otherwise a line for each broken rule, at most 20, in the order of the
// file; a missing field has the line of the enclosing message:
//   job.textproto:31: optimizer.learning_rate: must be at least 0, is -1
absl::StatusOr<proto::Job> ParseJobFile(absl::string_view text,
                                        absl::string_view filename);

// Like ParseJobFile, for the file at `path`.
// Errors: NOT_FOUND when the file cannot be read; INVALID_ARGUMENT when it is
// longer than 1 MiB; those of ParseJobFile.
absl::StatusOr<proto::Job> LoadJobFile(const std::string& path);

// The part of the job on which workers must agree, serialized: all of it except
// `local` and the data's paths, since each machine may keep the data in a
// different place, and workers compare the data's own digest. Equal jobs give
// equal bytes.
std::string SharedJob(const proto::Job& job);

// The SHA-256 of SharedJob, in hexadecimal.
std::string JobDigest(const proto::Job& job);

// The job file from which workers made `declaration`, without the data's
// paths.
// Errors: NOT_FOUND when they had no job file; DATA_LOSS when it does not
// parse.
absl::StatusOr<proto::Job> DeclaredJobFile(
    const proto::Declaration& declaration);

// Whether some values of the column or feature are computed from the training
// set, as its field `computed` says.
bool IsComputed(const proto::CsvColumn& column);
bool IsComputed(const proto::TfRecordFeature& feature);

// Pointers to the paths in `dataset`.
std::vector<std::string*> DataPaths(proto::Dataset* dataset);

// The names of all `layers`. The default is the layer's kind and, after the
// first of its kind, the number of layers of that kind before it: "dense",
// "dense_1". Nested layers are numbered separately.
std::vector<std::string> LayerNames(
    const google::protobuf::RepeatedPtrField<proto::Layer>& layers);

// The compression of the gradients and values of the variables with these
// names, in the order of `names`, as in proto::Variable.
// Errors: INVALID_ARGUMENT when a compression rule of the job matches none of
// `names`, which must be a mistake.
absl::StatusOr<std::vector<proto::Compression>> ResolveCompression(
    const proto::Job& job, absl::Span<const std::string> names);

// The order of examples that the job specifies.
Shuffle ShuffleOf(const proto::Data& data);

// How the pushes of `job`, which must be valid, become steps on a cluster of
// `workers`, including the chief.
// Errors: INVALID_ARGUMENT as in common/job/consistency_rules.h, and when a job
// with examples by step has both short last batches and backup replicas.
absl::StatusOr<Replicas> ResolveConsistency(const proto::Job& job,
                                            uint32_t workers);

// TotalTickets and TotalSteps compute a job's length for `num_examples`
// training examples, as in the declaration. `epochs` are rounded up to whole
// batches, or to whole steps if the examples are BY_STEP; with
// data.short_last_batch every epoch is rounded up separately
// (common/job/batch_ranges.h).
//
// The number of tickets to issue, one for each batch; from 1 to 1e18, or 0 if
// the examples are BY_STEP. If the job file gives `steps`, it is `steps` in an
// asynchronous job, and `steps` x N in a synchronous one.
uint64_t TotalTickets(const proto::Job& job, uint64_t num_examples,
                      const Replicas& replicas);
// The number of global steps, from 1 to 1e15. If the examples are BY_TICKET, it
// is the number of steps that the tickets make.
uint64_t TotalSteps(const proto::Job& job, uint64_t num_examples,
                    const Replicas& replicas);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_JOB_FILE_H_
