#include "worker/trainer/declaration.h"

namespace holdfast {
namespace {

proto::Consistency ConsistencyOf(const Replicas& replicas) {
  proto::Consistency consistency;
  if (replicas.asynchronous) {
    auto* asynchronous = consistency.mutable_asynchronous();
    asynchronous->set_pipeline_depth(replicas.pipeline_depth);
    if (replicas.staleness_bound.has_value()) {
      asynchronous->set_staleness_bound(*replicas.staleness_bound);
    }
  } else {
    auto* synchronous = consistency.mutable_synchronous();
    synchronous->set_replicas_to_aggregate(replicas.to_aggregate);
    synchronous->set_total_num_replicas(replicas.total);
  }
  return consistency;
}

}  // namespace

proto::Declaration MakeDeclaration(const proto::Job& job,
                                   absl::Span<const proto::Variable> variables,
                                   const Replicas& replicas,
                                   uint64_t num_examples) {
  proto::Declaration declaration;
  for (const proto::Variable& variable : variables) {
    *declaration.add_variables() = variable;
    declaration.mutable_variables()->rbegin()->set_optimizer(0);
  }
  *declaration.add_optimizers() = job.optimizer();
  *declaration.mutable_consistency() = ConsistencyOf(replicas);
  declaration.set_placement(job.placement());
  declaration.set_seed(job.seed());
  declaration.set_total_steps(TotalSteps(job, num_examples, replicas));
  declaration.set_total_tickets(TotalTickets(job, num_examples, replicas));
  declaration.set_examples(replicas.examples);
  if (job.has_timeouts()) *declaration.mutable_timeouts() = job.timeouts();
  if (job.has_clipping()) *declaration.mutable_clipping() = job.clipping();
  if (job.has_partitioner()) {
    *declaration.mutable_partitioner() = job.partitioner();
  }
  *declaration.mutable_checkpoints() = job.checkpoints();
  if (job.has_lost_workers()) {
    *declaration.mutable_lost_workers() = job.lost_workers();
  }
  return declaration;
}

}  // namespace holdfast
