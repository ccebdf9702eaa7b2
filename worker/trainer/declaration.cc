#include "worker/trainer/declaration.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

absl::StatusOr<proto::Declaration> MakeDeclaration(
    const proto::Job& job, absl::Span<const proto::Variable> variables,
    const Replicas& replicas, uint64_t num_examples) {
  std::vector<std::string> names;
  for (const proto::Variable& variable : variables) {
    names.push_back(variable.name());
  }
  const auto compression = ResolveCompression(job, names);
  if (!compression.ok()) return compression.status();
  proto::Declaration declaration;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].initializer().has_given()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the model's variable \"", variables[i].name(),
          "\": its first values cannot be given in ps_worker, but by a worker "
          "of your own (client/cluster.h); or choose another initializer"));
    }
    proto::Variable& variable = *declaration.add_variables();
    variable = variables[i];
    variable.set_optimizer(0);
    // What is averaged travels as it is.
    if (job.compression_size() > 0 && !variable.has_moving_average()) {
      *variable.mutable_compression() = (*compression)[i];
    }
  }
  *declaration.add_optimizers() = job.optimizer();
  *declaration.mutable_consistency() = job.consistency();
  FillIn(replicas, declaration.mutable_consistency());
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
  if (job.precision().has_float16()) {
    *declaration.mutable_loss_scale() = job.precision().float16().loss_scale();
  }
  if (job.has_max_consecutive_not_finite()) {
    declaration.set_max_consecutive_not_finite(
        job.max_consecutive_not_finite());
  }
  *declaration.mutable_checkpoints() = job.checkpoints();
  if (job.has_evaluation()) {
    *declaration.mutable_evaluation() = job.evaluation();
  }
  if (job.has_lost_workers()) {
    *declaration.mutable_lost_workers() = job.lost_workers();
  }
  return declaration;
}

proto::DeclaredJob DeclareJob(const proto::Job& job,
                              const ExampleSpec& examples) {
  proto::DeclaredJob declared;
  declared.set_job_file(SharedJob(job));
  declared.mutable_example_shape()->Add(examples.shape.begin(),
                                        examples.shape.end());
  declared.set_num_classes(examples.num_classes.value_or(0));
  declared.set_num_targets(examples.num_targets);
  return declared;
}

}  // namespace holdfast
