// How a job's pushes become steps, how many workers it may have, and whose
// examples are whose: the defaults of these fields, and the rules between them.
// A job file and a declaration have the same fields; the reader of job files
// and the coordinator judge both by what stands here.
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

// The fields in question, of a Job or a Declaration.
struct ConsistencyFields {
  proto::Consistency consistency;
  proto::LostWorkers lost_workers;
  proto::ExampleAssignment examples = proto::EXAMPLES_DEFAULT;
};

template <typename JobOrDeclaration>
ConsistencyFields ConsistencyFieldsOf(const JobOrDeclaration& message) {
  return {message.consistency(), message.lost_workers(), message.examples()};
}

// What the fields come to on a cluster of so many workers; with defaults filled
// in.
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

  // Whether the job goes on without lost workers, and how many must be left.
  bool continues = false;
  uint32_t min_replicas = 1;

  // max(N, M), the contributions that a step of a synchronous job has room for.
  uint32_t seats() const { return to_aggregate > total ? to_aggregate : total; }
  bool by_ticket() const { return examples == proto::BY_TICKET; }
  // By ticket.
  uint32_t tickets_per_step() const { return asynchronous ? 1 : to_aggregate; }
  // By ticket: the steps that so many tickets make, the last of which may have
  // fewer.
  uint64_t StepsOfTickets(uint64_t tickets) const {
    const uint64_t per_step = tickets_per_step();
    return tickets / per_step + (tickets % per_step > 0 ? 1 : 0);
  }
};

// The rules that `fields` break on any cluster. Each field by itself is valid.
std::vector<BrokenRule> FindBrokenConsistencyRules(
    const ConsistencyFields& fields);

// What `fields` come to on a cluster of `workers`, the chief included. Where
// lost workers are gone on without, M is max_workers.
// Errors: INVALID_ARGUMENT for the first of FindBrokenConsistencyRules; or,
// naming both numbers and which to change, when total_num_replicas is not M; N
// is 0, above 1024 M, or above M where lost workers are gone on without;
// max_workers is below `workers`, or min_replicas above max_workers; when there
// are no workers; when examples by step meet workers beyond the cluster.
absl::StatusOr<Replicas> ResolveConsistency(const ConsistencyFields& fields,
                                            uint32_t workers);

// Fills the defaults in, as `replicas` were resolved from the same fields.
void FillIn(const Replicas& replicas, proto::Consistency* consistency);
void FillIn(const Replicas& replicas, proto::LostWorkers* lost_workers);

// `total_tickets` of a declaration with its default filled in: those that fill
// all of `total_steps`.
// Errors: INVALID_ARGUMENT when they are not those of `total_steps`, or would
// be too many.
absl::StatusOr<uint64_t> ResolveTickets(const Replicas& replicas,
                                        uint64_t total_steps,
                                        uint64_t total_tickets);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_CONSISTENCY_RULES_H_
