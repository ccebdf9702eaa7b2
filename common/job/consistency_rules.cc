// SPDX-License-Identifier: Apache-2.0
#include "common/job/consistency_rules.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// N may be at most this many times M.
constexpr uint32_t kMaxSeatsPerWorker = 1024;

// Whether the job continues without lost workers.
bool Continues(const ConsistencyFields& fields) {
  return fields.consistency.has_asynchronous() ||
         fields.lost_workers.policy() == proto::LostWorkers::CONTINUE;
}

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// "1 worker", "2 workers".
std::string CountOf(uint32_t workers) {
  return absl::StrCat(workers, workers == 1 ? " worker" : " workers");
}

absl::Status CheckSynchronous(const Replicas& replicas) {
  const uint32_t n = replicas.to_aggregate;
  const uint32_t m = replicas.total;
  if (n == 0) {
    return Invalid("replicas_to_aggregate is 0 of ", CountOf(m),
                   ": it must be at least 1");
  }
  if (n > uint64_t{kMaxSeatsPerWorker} * m) {
    return Invalid("replicas_to_aggregate is ", n, ", which is above ",
                   kMaxSeatsPerWorker, " times total_num_replicas, ", m);
  }
  if (replicas.continues && n > m) {
    return Invalid("replicas_to_aggregate is ", n, " of ", CountOf(m),
                   ": if lost_workers.policy is CONTINUE, it must be at most "
                   "their number");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<BrokenRule> FindBrokenConsistencyRules(
    const ConsistencyFields& fields) {
  std::vector<BrokenRule> broken;
  const proto::LostWorkers& lost = fields.lost_workers;
  if (fields.consistency.has_asynchronous()) {
    if (fields.examples == proto::BY_STEP) {
      broken.push_back({"examples",
                        "must be BY_TICKET in an asynchronous job, whose "
                        "pushes have no seats in steps, is BY_STEP"});
    }
    if (lost.policy() == proto::LostWorkers::WAIT) {
      broken.push_back({"lost_workers.policy",
                        "must be CONTINUE in an asynchronous job, whose pushes "
                        "do not wait for other workers, is WAIT"});
      return broken;
    }
  }
  if (!Continues(fields)) {
    for (const auto& [is_set, field] :
         {std::pair(lost.has_min_replicas(), "lost_workers.min_replicas"),
          std::pair(lost.has_max_workers(), "lost_workers.max_workers")}) {
      if (is_set) broken.push_back({field, "needs policy: CONTINUE"});
    }
    return broken;
  }
  if (lost.has_max_workers() && lost.min_replicas() > lost.max_workers()) {
    broken.push_back(
        {"lost_workers.min_replicas",
         absl::StrCat("must be at most max_workers, which is ",
                      lost.max_workers(), ", is ", lost.min_replicas())});
  }
  const auto& sync = fields.consistency.synchronous();
  if (lost.has_max_workers() && sync.has_total_num_replicas() &&
      sync.total_num_replicas() != lost.max_workers()) {
    broken.push_back(
        {"consistency.synchronous.total_num_replicas",
         absl::StrCat("must be lost_workers.max_workers, which is ",
                      lost.max_workers(), ", is ", sync.total_num_replicas())});
    return broken;
  }
  const uint32_t most =
      lost.has_max_workers() ? lost.max_workers() : sync.total_num_replicas();
  if (most > 0 && sync.replicas_to_aggregate() > most) {
    broken.push_back({"consistency.synchronous.replicas_to_aggregate",
                      absl::StrCat("must be at most the ", most,
                                   " workers that there may be if "
                                   "lost_workers.policy is CONTINUE, is ",
                                   sync.replicas_to_aggregate())});
  }
  return broken;
}

absl::StatusOr<Replicas> ResolveConsistency(const ConsistencyFields& fields,
                                            uint32_t workers) {
  if (workers == 0) {
    return Invalid("the cluster has 0 workers: there must be at least 1");
  }
  const proto::LostWorkers& lost = fields.lost_workers;
  const auto& sync = fields.consistency.synchronous();
  Replicas result;
  result.continues = Continues(fields);
  result.total =
      lost.has_max_workers() && result.continues ? lost.max_workers() : workers;
  if (result.total < workers) {
    return Invalid("lost_workers.max_workers is ", result.total,
                   ", but the cluster has ", workers,
                   " workers (the chief included): set it to ", workers,
                   " or more");
  }
  if (!lost.has_max_workers() && sync.has_total_num_replicas() &&
      sync.total_num_replicas() != workers) {
    const uint32_t total = sync.total_num_replicas();
    return Invalid("total_num_replicas is ", total, ", but the cluster has ",
                   CountOf(workers),
                   " (the chief included): set total_num_replicas to ", workers,
                   ", or start a cluster of ", total);
  }
  if (const auto broken = FindBrokenConsistencyRules(fields); !broken.empty()) {
    return Invalid(broken[0].path, ": ", broken[0].what);
  }
  if (lost.has_min_replicas()) result.min_replicas = lost.min_replicas();
  if (result.min_replicas > result.total) {
    return Invalid("lost_workers.min_replicas is ", result.min_replicas,
                   ", but there may be ", CountOf(result.total),
                   ": set it to at most that number, or increase max_workers");
  }
  if (fields.consistency.has_asynchronous()) {
    const auto& async = fields.consistency.asynchronous();
    result.asynchronous = true;
    result.examples = proto::BY_TICKET;
    if (async.has_pipeline_depth()) {
      result.pipeline_depth = async.pipeline_depth();
    }
    if (async.has_staleness_bound()) {
      result.staleness_bound = async.staleness_bound();
    }
    return result;
  }

  if (fields.examples == proto::BY_TICKET) result.examples = proto::BY_TICKET;
  // A step has a seat for each worker that may exist; the seat of one that
  // never joins would leave a gap in the examples of every step.
  if (result.total > workers && !result.by_ticket()) {
    return Invalid("lost_workers.max_workers is ", result.total,
                   ", but the cluster has ", workers,
                   " workers (the chief included): workers beyond the cluster "
                   "need examples: BY_TICKET");
  }
  result.to_aggregate = sync.has_replicas_to_aggregate()
                            ? sync.replicas_to_aggregate()
                            : result.total;
  HOLDFAST_RETURN_IF_ERROR(CheckSynchronous(result));
  return result;
}

void FillIn(const Replicas& replicas, proto::Consistency* consistency) {
  if (replicas.asynchronous) {
    auto* const async = consistency->mutable_asynchronous();
    async->set_pipeline_depth(replicas.pipeline_depth);
    if (replicas.staleness_bound.has_value()) {
      async->set_staleness_bound(*replicas.staleness_bound);
    }
    return;
  }
  auto* const sync = consistency->mutable_synchronous();
  sync->set_replicas_to_aggregate(replicas.to_aggregate);
  sync->set_total_num_replicas(replicas.total);
}

void FillIn(const Replicas& replicas, proto::LostWorkers* lost_workers) {
  if (!replicas.continues) {
    lost_workers->set_policy(proto::LostWorkers::WAIT);
    return;
  }
  lost_workers->set_policy(proto::LostWorkers::CONTINUE);
  lost_workers->set_min_replicas(replicas.min_replicas);
  lost_workers->set_max_workers(replicas.total);
}

// The maximum of Declaration.total_tickets.
constexpr uint64_t kMaxTickets = 1'000'000'000'000'000'000;

absl::StatusOr<uint64_t> ResolveTickets(const Replicas& replicas,
                                        uint64_t total_steps,
                                        uint64_t total_tickets) {
  if (!replicas.by_ticket()) {
    if (total_tickets == 0) return 0;
    return Invalid("total_tickets is ", total_tickets,
                   ", but examples are BY_STEP");
  }
  if (replicas.asynchronous) {
    if (total_tickets == 0 || total_tickets == total_steps) return total_steps;
    return Invalid("total_tickets is ", total_tickets,
                   ", but must be total_steps, ", total_steps,
                   ": each asynchronous push is a step");
  }
  if (total_tickets == 0 && total_steps > 0) {
    if (total_steps > kMaxTickets / replicas.to_aggregate) {
      return Invalid("total_steps is ", total_steps, ", with ",
                     replicas.to_aggregate, " tickets in each: more than ",
                     kMaxTickets, " tickets");
    }
    return total_steps * replicas.to_aggregate;
  }
  const uint64_t steps = replicas.StepsOfTickets(total_tickets);
  if (total_tickets == 0 || total_steps != steps) {
    return Invalid("total_tickets is ", total_tickets, ", which make ", steps,
                   " steps of ", replicas.to_aggregate, "; total_steps is ",
                   total_steps);
  }
  return total_tickets;
}

}  // namespace holdfast
