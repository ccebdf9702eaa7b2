#include "worker/trainer/declaration.h"

namespace holdfast {

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
  auto* synchronous = declaration.mutable_consistency()->mutable_synchronous();
  synchronous->set_replicas_to_aggregate(replicas.to_aggregate);
  synchronous->set_total_num_replicas(replicas.total);
  declaration.set_placement(job.placement());
  declaration.set_seed(job.seed());
  declaration.set_total_steps(TotalSteps(job, num_examples, replicas.seats()));
  *declaration.mutable_timeouts() = job.timeouts();
  return declaration;
}

}  // namespace holdfast
