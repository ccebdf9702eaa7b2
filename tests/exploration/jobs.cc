// SPDX-License-Identifier: Apache-2.0
#include "tests/exploration/jobs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/given_values.h"
#include "tests/world/client_worker.h"
#include "tests/world/evaluator.h"

namespace holdfast::exploration {
namespace {

constexpr uint32_t kNumPs = 2;
constexpr uint32_t kNumWorkers = 2;

Scenario Base(std::string name, uint64_t steps) {
  Scenario scenario;
  sim::Job& job = scenario.job;
  job.name = std::move(name);
  job.num_ps = kNumPs;
  job.num_workers = kNumWorkers;
  job.declaration.set_total_steps(steps);
  job.declaration.mutable_timeouts()->set_start_seconds(40);
  job.declaration.mutable_timeouts()->set_step_seconds(60);
  job.declaration.mutable_timeouts()->set_recovery_seconds(60);
  job.declaration.mutable_checkpoints()->set_every_seconds(0);
  return scenario;
}

Scenario MakeSynchronous(std::string name, uint64_t steps, uint32_t n) {
  Scenario scenario = Base(std::move(name), steps);
  proto::Declaration& declaration = scenario.job.declaration;
  for (const char* variable_name : {"a", "b"}) {
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name(variable_name);
    variable.add_shape(1);
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_constant()->set_value(1);
  }
  declaration.add_optimizers()->set_learning_rate(1);
  declaration.mutable_optimizers(0)->mutable_momentum()->set_momentum(0.5);
  auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(n);
  mode.set_total_num_replicas(kNumWorkers);
  declaration.mutable_checkpoints()->set_every_steps(1);
  // The loss scale doubles with each step, so that it identifies the version.
  declaration.mutable_loss_scale()->set_initial(1);
  declaration.mutable_loss_scale()->set_growth_interval(1);
  return scenario;
}

}  // namespace

Scenario Synchronous(uint64_t steps) {
  return MakeSynchronous(absl::StrCat("synchronous, ", steps, " steps"), steps,
                         kNumWorkers);
}

Scenario GivenValues(uint64_t steps) {
  Scenario scenario = MakeSynchronous(
      absl::StrCat("given values, ", steps, " steps"), steps, kNumWorkers);
  sim::Job& job = scenario.job;
  float first = 1;
  for (const char* name : {"x", "y", "z"}) {
    std::vector<float>& values = job.first_values[name];
    values = {++first};
    proto::Variable& variable = *job.declaration.add_variables();
    variable = job.declaration.variables(0);
    variable.set_name(name);
    *variable.mutable_initializer()->mutable_given() = GivenDigests(values);
  }
  return scenario;
}

Scenario Backup(uint64_t steps) {
  return MakeSynchronous(absl::StrCat("backup, ", steps, " steps"), steps, 1);
}

Scenario TwoSeats(uint64_t steps) {
  return MakeSynchronous(absl::StrCat("two seats, ", steps, " steps"), steps,
                         2 * kNumWorkers);
}

Scenario ByTicket(uint64_t tickets) {
  Scenario scenario =
      MakeSynchronous(absl::StrCat("by ticket, ", tickets, " tickets"),
                      (tickets + 1) / kNumWorkers, kNumWorkers);
  scenario.job.declaration.set_examples(proto::BY_TICKET);
  scenario.job.declaration.set_total_tickets(tickets);
  return scenario;
}

Scenario Continue(uint64_t tickets) {
  Scenario scenario = ByTicket(tickets);
  scenario.job.name = absl::StrCat("CONTINUE, ", scenario.job.name);
  scenario.job.declaration.mutable_lost_workers()->set_policy(
      proto::LostWorkers::CONTINUE);
  return scenario;
}

Scenario Asynchronous(uint64_t tickets, uint32_t depth) {
  Scenario scenario =
      Base(absl::StrCat("asynchronous, ", tickets, " tickets, depth ", depth),
           tickets);
  proto::Declaration& declaration = scenario.job.declaration;
  proto::Variable& variable = *declaration.add_variables();
  variable.set_name(sim::kTickets);
  variable.add_shape(kNumPs);
  variable.add_shape(tickets);
  variable.add_shape(2);
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_zeros();
  declaration.mutable_partitioner()->mutable_fixed_shards()->set_shards(kNumPs);
  declaration.set_placement(proto::ROUND_ROBIN);
  declaration.add_optimizers()->set_learning_rate(1);
  declaration.mutable_optimizers(0)->mutable_sgd();
  declaration.mutable_consistency()->mutable_asynchronous()->set_pipeline_depth(
      depth);
  declaration.mutable_checkpoints()->set_every_steps(2);
  return scenario;
}

Scenario Judged() {
  Scenario scenario = MakeSynchronous("judged", 6, kNumWorkers);
  // The evaluation of step 2 is no better than that of step 1.
  proto::Evaluation& evaluation =
      *scenario.job.declaration.mutable_evaluation();
  evaluation.set_every_steps(1);
  evaluation.mutable_keep_best();
  evaluation.mutable_early_stopping()->set_patience(1);
  evaluation.mutable_early_stopping()->set_min_delta(100);
  evaluation.mutable_early_stopping()->set_at_fixed_steps(true);
  scenario.job.ends_at = 3;
  scenario.make_worker = [](sim::World* world, sim::Process process,
                            uint32_t index, uint64_t nonce) {
    return index == kNumWorkers
               ? sim::MakeEvaluator(world, process, nonce)
               : sim::MakeScriptedWorker(world, process, index, nonce);
  };
  return scenario;
}

Scenario WithRate(Scenario scenario) {
  scenario.job.changes_rate = true;
  scenario.job.name += ", another rate";
  return scenario;
}

Scenario WithRows(Scenario scenario) {
  sim::AddRows(&scenario.job.declaration);
  scenario.job.name += ", rows";
  return scenario;
}

Scenario TablesAlone(Scenario scenario) {
  scenario = WithRows(std::move(scenario));
  proto::Declaration& declaration = scenario.job.declaration;
  while (declaration.variables_size() > 1) {
    declaration.mutable_variables()->RemoveLast();
  }
  scenario.job.tables_alone = true;
  scenario.job.name += " alone";
  return scenario;
}

Scenario WithoutArchive(Scenario scenario) {
  scenario.job.archive = false;
  scenario.job.name += ", no checkpoints";
  return scenario;
}

Scenario OnePs(Scenario scenario) {
  scenario.job.num_ps = 1;
  scenario.job.name += ", one ps";
  proto::Declaration& declaration = scenario.job.declaration;
  if (scenario.job.asynchronous()) {
    declaration.mutable_variables(0)->set_shape(0, 1);
    declaration.clear_partitioner();
  }
  return scenario;
}

Scenario InParts(Scenario scenario) {
  scenario.job.cuts_pushes = true;
  scenario.job.name += ", in parts";
  return scenario;
}

Scenario Client(Scenario scenario) {
  scenario.make_worker = sim::MakeClientWorker;
  scenario.job.name += ", by the client";
  return scenario;
}

Scenario Lending(Scenario scenario) {
  scenario = Client(InParts(std::move(scenario)));
  sim::Job& job = scenario.job;
  job.lends = true;
  job.name += ", lending";
  // "a" is lent. With one ps, a push that is lent is {c}, {b, a}, and one that
  // is sent is {c}, {b}, {a[0]}, {a[1]}.
  if (!job.asynchronous()) {
    proto::Declaration& declaration = job.declaration;
    declaration.mutable_variables(0)->set_shape(0, 2);
    *declaration.add_variables() = declaration.variables(1);
    declaration.mutable_variables(2)->set_name("c");
  }
  return scenario;
}

Scenario InOneCall(Scenario scenario) {
  // {b, a} fits in a PushPull.
  scenario.job.declaration.mutable_variables()->RemoveLast();
  scenario.job.name += ", in one call";
  return scenario;
}

Scenario WithStranger(Scenario scenario) {
  scenario.stranger = true;
  scenario.job.name += ", a stranger";
  return scenario;
}

Scenario WithOutlivingCalls(Scenario scenario) {
  scenario.calls_outlive_generation = true;
  scenario.job.name += ", calls outlive their generation";
  return scenario;
}

Scenario With(sim::Misdeed misdeed, Scenario scenario) {
  scenario.job.misdeed = misdeed;
  scenario.job.name += ", a faulty worker";
  return scenario;
}

}  // namespace holdfast::exploration
