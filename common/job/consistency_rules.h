// SPDX-License-Identifier: Apache-2.0

// How a job's pushes become steps, how many workers it may have, and how its
// examples are assigned: the defaults of these fields, and the rules between
// them. A job file and a declaration have the same fields; the job file's
// reader and the coordinator both apply these rules.
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_JOB_CONSISTENCY_RULES_H_
#define HOLDFAST_COMMON_JOB_CONSISTENCY_RULES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/validate.h"
#include "proto/training.pb.h"

namespace holdfast {

// The fields of a Job or a Declaration to which the rules apply.
struct ConsistencyFields {
  proto::Consistency consistency;
  proto::LostWorkers lost_workers;
  proto::ExampleAssignment examples = proto::EXAMPLES_DEFAULT;
};

template <typename JobOrDeclaration>
ConsistencyFields ConsistencyFieldsOf(const JobOrDeclaration& message) {
  return {message.consistency(), message.lost_workers(), message.examples()};
}

// The fields as resolved for a cluster with a given number of workers, with
// defaults filled in.
struct Replicas {
  // N, the number of gradients that make a step. 0 in an asynchronous job,
  // where every push is a step.
  uint32_t to_aggregate = 0;
  // M, the maximum number of workers, including the chief.
  uint32_t total = 0;

  bool asynchronous = false;
  // In an asynchronous job, the number of pushes that a worker may have begun
  // but not finished.
  uint32_t pipeline_depth = 1;
  // In an asynchronous job, the number of pushes that a worker may be ahead of
  // the slowest; unbounded if absent.
  std::optional<uint32_t> staleness_bound;

  // BY_STEP or BY_TICKET; BY_TICKET in an asynchronous job.
  proto::ExampleAssignment examples = proto::BY_STEP;

  // Whether the job continues without lost workers, and how many must be left.
  bool continues = false;
  uint32_t min_replicas = 1;

  // max(N, M), the maximum number of contributions to a step of a synchronous
  // job.
  uint32_t seats() const { return to_aggregate > total ? to_aggregate : total; }
  bool by_ticket() const { return examples == proto::BY_TICKET; }
  // The number of tickets that make a step. Only for jobs with examples by
  // ticket.
  uint32_t tickets_per_step() const { return asynchronous ? 1 : to_aggregate; }
  // The number of steps that `tickets` tickets make, of which the last may have
  // fewer tickets. Only for jobs with examples by ticket.
  uint64_t StepsOfTickets(uint64_t tickets) const {
    const uint64_t per_step = tickets_per_step();
    return tickets / per_step + (tickets % per_step > 0 ? 1 : 0);
  }
};

// The rules that `fields` break whatever the cluster. Each single field must be
// valid.
std::vector<BrokenRule> FindBrokenConsistencyRules(
    const ConsistencyFields& fields);

// Resolves `fields` for a cluster of `workers`, including the chief. If the job
// continues without lost workers, M is max_workers.
// Errors: INVALID_ARGUMENT for the first of FindBrokenConsistencyRules; or,
// naming both numbers and which one to change, when total_num_replicas is not
// M; when N is 0, above 1024 M, or above M in a job that continues without lost
// workers; when max_workers is below `workers`, or min_replicas above
// max_workers; when there are no workers; when examples are by step and there
// may be workers beyond the cluster.
absl::StatusOr<Replicas> ResolveConsistency(const ConsistencyFields& fields,
                                            uint32_t workers);

// Fills in the defaults; `replicas` must have been resolved from the same
// fields.
void FillIn(const Replicas& replicas, proto::Consistency* consistency);
void FillIn(const Replicas& replicas, proto::LostWorkers* lost_workers);

// Returns `total_tickets`, a field of a declaration, or its default if it is 0:
// as many tickets as `total_steps` full steps need, or 0 if examples are by
// step.
// Errors: INVALID_ARGUMENT when `total_tickets` does not match `total_steps`,
// or would be too large.
absl::StatusOr<uint64_t> ResolveTickets(const Replicas& replicas,
                                        uint64_t total_steps,
                                        uint64_t total_tickets);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_CONSISTENCY_RULES_H_
