#include "tests/exploration/jobs.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast::exploration {
namespace {

proto::Declaration Base(uint64_t steps) {
  proto::Declaration declaration;
  for (const char* name : {"a", "b"}) {
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name(name);
    variable.add_shape(1);
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_constant()->set_value(1);
  }
  declaration.add_optimizers()->set_learning_rate(1);
  declaration.set_total_steps(steps);
  declaration.mutable_timeouts()->set_start_seconds(40);
  declaration.mutable_timeouts()->set_step_seconds(60);
  declaration.mutable_timeouts()->set_recovery_seconds(60);
  declaration.mutable_checkpoints()->set_every_seconds(0);
  return declaration;
}

Job MakeSynchronous(std::string name, uint64_t steps, uint32_t n) {
  Job job;
  job.name = std::move(name);
  job.declaration = Base(steps);
  job.declaration.mutable_optimizers(0)->mutable_momentum()->set_momentum(0.5);
  auto& mode = *job.declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(n);
  mode.set_total_num_replicas(kNumWorkers);
  job.declaration.mutable_checkpoints()->set_every_steps(1);
  // It doubles with each step, so that it tells the version.
  job.declaration.mutable_loss_scale()->set_initial(1);
  job.declaration.mutable_loss_scale()->set_growth_interval(1);
  return job;
}

}  // namespace

Job Synchronous(uint64_t steps) {
  return MakeSynchronous(absl::StrCat("synchronous, ", steps, " steps"), steps,
                         kNumWorkers);
}

Job Backup(uint64_t steps) {
  return MakeSynchronous(absl::StrCat("backup, ", steps, " steps"), steps, 1);
}

Job ByTicket(uint64_t tickets) {
  Job job = MakeSynchronous(absl::StrCat("by ticket, ", tickets, " tickets"),
                            (tickets + 1) / kNumWorkers, kNumWorkers);
  job.declaration.set_examples(proto::BY_TICKET);
  job.declaration.set_total_tickets(tickets);
  return job;
}

Job Continue(uint64_t tickets) {
  Job job = ByTicket(tickets);
  job.name = absl::StrCat("CONTINUE, ", job.name);
  job.declaration.mutable_lost_workers()->set_policy(
      proto::LostWorkers::CONTINUE);
  return job;
}

Job Asynchronous(uint64_t tickets, uint32_t depth) {
  Job job;
  job.name = absl::StrCat("asynchronous, ", tickets, " tickets, depth ", depth);
  job.declaration = Base(tickets);
  job.declaration.mutable_optimizers(0)->mutable_sgd();
  job.declaration.mutable_consistency()
      ->mutable_asynchronous()
      ->set_pipeline_depth(depth);
  job.declaration.mutable_checkpoints()->set_every_steps(2);
  return job;
}

Job WithoutArchive(Job job) {
  job.archive = false;
  job.name += ", no checkpoints";
  return job;
}

Job With(Misdeed misdeed, Job job) {
  job.misdeed = misdeed;
  job.name += ", a faulty worker";
  return job;
}

}  // namespace holdfast::exploration
