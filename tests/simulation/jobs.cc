// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/jobs.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// The parts common to both kinds of jobs.
sim::Job Base(uint32_t num_ps, uint32_t num_workers,
              const std::optional<proto::Checkpoints>& checkpoints) {
  sim::Job job;
  job.num_ps = num_ps;
  job.num_workers = num_workers;
  job.archive = checkpoints.has_value();
  if (job.archive) *job.declaration.mutable_checkpoints() = *checkpoints;
  job.lease = absl::Seconds(1000);
  job.resend_after = absl::Seconds(3);
  job.park = absl::Seconds(1);
  job.cuts_pushes = true;
  // The rest of the job does not change.
  job.declaration.mutable_job();
  return job;
}

}  // namespace

std::string Name(const SynchronousJob& job) {
  return absl::StrCat(
      "N", job.n, "M", job.m, "P", job.num_ps,
      job.faults.lost > 0 ? "Lossy" : "",
      job.faults.repeated > 0 ? "Twice" : "", job.empty_handed ? "Weight0" : "",
      job.tickets > 0 ? absl::StrCat("T", job.tickets) : "",
      job.aggregation == proto::Consistency::SUM ? "Sum" : "",
      job.min_replicas > 0 ? absl::StrCat("Min", job.min_replicas) : "",
      job.faulty ? "Faulty" : "", job.lends ? "Lending" : "",
      job.early ? "Early" : "", job.starts_again ? "Again" : "",
      job.judged ? "Judged" : "", job.changes_rate ? "Rates" : "",
      job.rows ? "Rows" : "", job.tables_alone ? "TablesAlone" : "");
}

sim::Job MakeJob(const SynchronousJob& s) {
  sim::Job job = Base(s.num_ps, s.cluster_workers > 0 ? s.cluster_workers : s.m,
                      s.checkpoints);
  job.name = Name(s);
  job.empty_handed = s.empty_handed;
  job.faulty = s.faulty;
  job.lends = s.lends;
  job.computes_early = s.early;
  job.starts_again = s.starts_again;
  job.changes_rate = s.changes_rate;
  job.tables_alone = s.tables_alone;
  proto::Declaration& declaration = job.declaration;
  if (s.judged) {
    // Of the evaluations of steps 2, 4 and 6 (sim::LossOf), the last shows no
    // improvement.
    proto::Evaluation& evaluation = *declaration.mutable_evaluation();
    evaluation.set_every_steps(2);
    evaluation.mutable_keep_best()->set_count(2);
    evaluation.mutable_early_stopping()->set_patience(1);
    evaluation.mutable_early_stopping()->set_at_fixed_steps(true);
    job.ends_at = 8;
  }
  std::vector<std::pair<std::string, std::vector<int64_t>>> variables = {
      {"dense/kernel", {2, 3}}, {"dense/bias", {3}}, {"scale", {}}};
  if (s.lends) {
    // A slice of one element is sent, not lent, and "dense/bias" has one. With
    // one ps everything is a PushPull; otherwise a ps with more such slices is
    // sent several parts.
    variables.pop_back();
    for (const char* name : {"scale", "offset", "gain"}) {
      if (s.num_ps > 1) variables.emplace_back(name, std::vector<int64_t>());
    }
  }
  if (s.tables_alone) variables = {{"rows of the table", {6, 3}}};
  for (const auto& [name, shape] : variables) {
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name(name);
    variable.mutable_shape()->Assign(shape.begin(), shape.end());
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_constant()->set_value(0.5f);
  }
  if (!s.tables_alone) {
    proto::Variable& frozen = *declaration.add_variables();
    frozen = declaration.variables(0);
    frozen.set_name("frozen");
    frozen.set_trainable(false);
  }
  declaration.add_optimizers()->set_learning_rate(0.1f);
  declaration.mutable_optimizers(0)->mutable_momentum()->set_momentum(0.9f);
  if (s.rows || s.tables_alone) {
    // Elements stay unchanged where the gradient is 0, just as rows that a push
    // lacks.
    declaration.mutable_variables(0)->set_optimizer(1);
    declaration.add_optimizers()->set_learning_rate(0.1f);
    declaration.mutable_optimizers(1)->mutable_momentum()->set_momentum(0);
    sim::AddRows(&declaration);
  }
  declaration.mutable_partitioner()->mutable_fixed_shards()->set_shards(2);
  auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(s.n);
  mode.set_total_num_replicas(s.m);
  mode.set_aggregation(s.aggregation);
  declaration.set_total_steps(s.steps);
  declaration.mutable_loss_scale()->set_initial(8);
  declaration.mutable_loss_scale()->set_growth_interval(2);
  if (s.tickets > 0) {
    declaration.set_examples(proto::BY_TICKET);
    declaration.set_total_tickets(s.tickets);
  }
  if (s.min_replicas > 0) {
    proto::LostWorkers& lost = *declaration.mutable_lost_workers();
    lost.set_policy(proto::LostWorkers::CONTINUE);
    lost.set_min_replicas(s.min_replicas);
    lost.set_max_workers(s.m);
  }
  return job;
}

std::string Name(const AsynchronousJob& job) {
  return absl::StrCat(
      "P", job.num_ps, "W", job.workers, "D", job.depth,
      job.bound.has_value() ? absl::StrCat("S", *job.bound) : "",
      job.lends ? "Lending" : "", job.starts_again ? "Again" : "",
      job.rows ? "Rows" : "", job.tables_alone ? "TablesAlone" : "");
}

sim::Job MakeJob(const AsynchronousJob& s) {
  sim::Job job = Base(s.num_ps, s.workers, s.checkpoints);
  job.name = Name(s);
  job.faulty = s.faulty;
  job.lends = s.lends;
  job.starts_again = s.starts_again;
  job.tables_alone = s.tables_alone;
  proto::Declaration& declaration = job.declaration;
  const auto add_optimizer = [&](float rate) {
    proto::Optimizer& optimizer = *declaration.add_optimizers();
    optimizer.set_learning_rate(rate);
    optimizer.mutable_sgd();
    return &optimizer;
  };
  add_optimizer(1);
  proto::LearningRateSchedule::Piecewise& pieces =
      *add_optimizer(1)->mutable_schedule()->mutable_piecewise();
  for (uint64_t i = 1; i < s.tickets; ++i) {
    proto::LearningRateSchedule::Piecewise::Piece& piece = *pieces.add_pieces();
    piece.set_from_step(i);
    piece.set_learning_rate(std::ldexp(1.0f, -static_cast<int>(i)));
  }
  add_optimizer(sim::kMomentumRate)
      ->mutable_momentum()
      ->set_momentum(sim::kMomentumKept);

  const auto add = [&](const std::string& name, const std::vector<int64_t>& row,
                       uint32_t optimizer) {
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name(name);
    variable.add_shape(s.num_ps);
    for (const int64_t d : row) variable.add_shape(d);
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_zeros();
    variable.set_optimizer(optimizer);
  };
  if (!s.tables_alone) add(sim::kCount, {3}, 0);
  add(sim::kTickets, {static_cast<int64_t>(s.tickets), 2}, 0);
  if (!s.tables_alone) add(sim::kRates, {}, 1);
  if (s.momentum) add(sim::kMomentum, {}, 2);
  if (s.rows || s.tables_alone) sim::AddRows(&declaration);
  declaration.mutable_partitioner()->mutable_fixed_shards()->set_shards(
      s.num_ps);
  declaration.set_placement(proto::ROUND_ROBIN);
  auto& mode = *declaration.mutable_consistency()->mutable_asynchronous();
  mode.set_pipeline_depth(s.depth);
  if (s.bound.has_value()) mode.set_staleness_bound(*s.bound);
  declaration.set_total_steps(s.tickets);
  return job;
}

}  // namespace holdfast
