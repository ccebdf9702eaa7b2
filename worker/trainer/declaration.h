// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_TRAINER_DECLARATION_H_
#define HOLDFAST_WORKER_TRAINER_DECLARATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/example_source.h"
#include "common/job/job_file.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/training.pb.h"
#include "worker/model/model.h"

namespace holdfast {

// Returns what the chief declares for `job`: the model's `variables`, all
// updated by the job's optimizer; the consistency, and the assignment of
// examples, as resolved for the cluster; and the job's length in steps and in
// tickets, which follows from `num_examples`.
// Errors: INVALID_ARGUMENT for a variable whose initializer is `given`, which
// models cannot use; those of ResolveCompression.
absl::StatusOr<proto::Declaration> MakeDeclaration(
    const proto::Job& job, absl::Span<const proto::Variable> variables,
    const Replicas& replicas, uint64_t num_examples);

// Adds the model's embedding tables, with their own optimizers, to the result
// of MakeDeclaration. If a table does not limit the rows of a push, its limit
// becomes the number of ids that a batch can have in the table's fields.
// Errors: INVALID_ARGUMENT, with the table's name, for fields that the examples
// do not have, and for an initializer or an optimizer that a table cannot have.
absl::Status AddTables(const proto::Job& job,
                       absl::Span<const ModelTable> tables,
                       const ExampleSpec& examples,
                       proto::Declaration* declaration);

// Returns Declaration.job for a `job` that trains on examples like `examples`.
proto::DeclaredJob DeclareJob(const proto::Job& job,
                              const ExampleSpec& examples);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_DECLARATION_H_
