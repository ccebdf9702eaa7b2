// SPDX-License-Identifier: Apache-2.0
#include "ps_server/metrics/job_metrics.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/job/task_id.h"
#include "proto/cluster.pb.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// Few enough that ps 0 of a job with 64 workers has at most 300 series.
constexpr size_t kMaxStepBounds = 4;
constexpr uint64_t kStalenessBounds[] = {0, 1, 2, 4, 8, 16, 32};

std::string NameOf(const proto::TaskId& task) {
  return ToTaskId(task).ToString();
}

void AddProgress(const proto::GetStatusResponse& status, Metrics* metrics) {
  for (const proto::JobPhase phase :
       {proto::STARTING, proto::TRAINING, proto::STOPPING, proto::DONE,
        proto::STOPPED, proto::FAILED}) {
    metrics->Gauge(
        "holdfast_job_state", "1 for the state the job is in.",
        status.state().phase() == phase,
        {{"state", absl::AsciiStrToLower(proto::JobPhase_Name(phase))}});
  }
  metrics->Gauge("holdfast_job_generation",
                 "Generation; one more with each recovery.",
                 status.generation());
  metrics->Gauge("holdfast_job_global_step",
                 "Steps that are decided; in asynchronous jobs, spent tickets.",
                 status.global_step());
  metrics->Gauge("holdfast_job_total_steps",
                 "Steps, or tickets, of the whole job.", status.total_steps());
  metrics->Gauge("holdfast_job_durable_step",
                 "Step of the newest checkpoint on disk; 0 without one.",
                 status.durable_step());
  metrics->Gauge("holdfast_job_examples",
                 "Examples processed in the steps so far.", status.examples());
  metrics->Gauge(
      "holdfast_job_training_seconds",
      "Time from the first step that could begin to the last commit.",
      status.training_seconds());
  metrics->Gauge("holdfast_job_steps_per_second",
                 "Steps per second, over the last 10 seconds of training.",
                 status.steps_per_second());
  metrics->Gauge("holdfast_job_examples_per_second",
                 "Examples per second, over the last 10 seconds of training.",
                 status.examples_per_second());
  metrics->Gauge("holdfast_job_since_progress_seconds",
                 "Time since a step was opened or a ticket spent.",
                 status.seconds_since_progress());
  if (status.has_train_loss()) {
    metrics->Gauge("holdfast_job_train_loss",
                   "Mean loss over the examples of the last 100 steps.",
                   status.train_loss());
  }
  if (!status.has_evaluation()) return;
  const proto::EvaluationResult& evaluation = status.evaluation();
  metrics->Gauge("holdfast_job_evaluation_step",
                 "Step of the latest evaluation.", evaluation.step());
  metrics->Gauge("holdfast_job_evaluation_loss",
                 "Mean loss of the latest evaluation.", evaluation.loss());
  if (evaluation.has_accuracy()) {
    metrics->Gauge("holdfast_job_evaluation_accuracy_ratio",
                   "Share of correct answers in the latest evaluation.",
                   evaluation.accuracy());
  }
}

void AddContributions(const proto::GetStatusResponse& status,
                      Metrics* metrics) {
  const proto::PushCounts& pushes = status.pushes();
  for (const auto& [verdict, count] : {
           std::pair("accepted", pushes.accepted()),
           std::pair("stale", pushes.stale()),
           std::pair("duplicate", pushes.duplicate()),
           std::pair("fenced", pushes.fenced()),
           std::pair("aborted", pushes.aborted()),
       }) {
    metrics->Gauge("holdfast_job_contributions",
                   "Pushes so far, by what became of them.", count,
                   {{"verdict", verdict}});
  }
  metrics->Gauge("holdfast_job_not_finite_contributions",
                 "Accepted pushes that changed nothing, because the loss or "
                 "the gradient was not finite.",
                 pushes.not_finite());
  if (status.staleness().empty()) return;
  Metrics::Distribution staleness;
  for (const uint64_t bound : kStalenessBounds) {
    staleness.bounds.push_back(static_cast<double>(bound));
    staleness.counts.push_back(0);
  }
  staleness.counts.push_back(0);
  for (const proto::StalenessCount& count : status.staleness()) {
    const auto first = std::lower_bound(
        staleness.bounds.begin(), staleness.bounds.end(), count.staleness());
    for (size_t i = first - staleness.bounds.begin();
         i < staleness.counts.size(); ++i) {
      staleness.counts[i] += count.pushes();
    }
    staleness.sum += static_cast<double>(count.staleness()) *
                     static_cast<double>(count.pushes());
  }
  metrics->Histogram("holdfast_job_staleness",
                     "Accepted pushes by how many others were applied between "
                     "the version they were computed on and theirs.",
                     staleness);
}

void AddStepTimes(const proto::StepTimes& times, Metrics* metrics) {
  for (const auto& [phase, told] : {std::pair("collect", &times.collect()),
                                    std::pair("commit", &times.commit())}) {
    Metrics::Distribution seconds;
    seconds.bounds.assign(told->bounds().begin(), told->bounds().end());
    seconds.counts.assign(told->counts().begin(), told->counts().end());
    seconds.sum = told->sum_seconds();
    metrics->Histogram(
        "holdfast_job_step_seconds",
        "Time of steps: until a step's contributions have arrived (collect), "
        "and from then until every shard has committed them (commit).",
        Thin(seconds, kMaxStepBounds), {{"phase", phase}});
  }
}

void AddCheckpoints(const proto::GetStatusResponse& status, Metrics* metrics) {
  const proto::CheckpointCounts& counts = status.checkpoints();
  metrics->Counter("holdfast_job_checkpoints_written_total",
                   "Checkpoints that were written.", counts.written());
  metrics->Counter("holdfast_job_checkpoints_failed_total",
                   "Checkpoints that could not be written.", counts.failed());
  metrics->Gauge("holdfast_job_checkpoint_failing",
                 "1 if the latest checkpoint could not be written.",
                 !status.checkpoint_error().empty());
  if (counts.written() == 0) return;
  metrics->Gauge("holdfast_job_checkpoint_seconds",
                 "Time that the newest checkpoint took.",
                 counts.last_seconds());
  metrics->Gauge("holdfast_job_checkpoint_bytes",
                 "Size of the newest checkpoint.", counts.last_bytes());
  if (counts.has_age_seconds()) {
    metrics->Gauge("holdfast_job_checkpoint_age_seconds",
                   "Age of the newest checkpoint.", counts.age_seconds());
  }
}

void AddTasks(const proto::GetStatusResponse& status, Metrics* metrics) {
  metrics->Gauge("holdfast_job_lease_seconds",
                 "How long a task may be silent before it counts as lost.",
                 status.lease_seconds());
  // The tasks alive and lost, by their job in the cluster. Prometheus has a
  // label "job" of its own.
  std::map<std::string, std::pair<int, int>> tasks;
  for (const proto::TaskStatus& task : status.tasks()) {
    auto& [alive, lost] = tasks[task.task().job()];
    ++(task.alive() ? alive : lost);
  }
  for (const auto& [role, counts] : tasks) {
    for (const auto& [state, count] :
         {std::pair("alive", counts.first), std::pair("lost", counts.second)}) {
      metrics->Gauge("holdfast_job_tasks",
                     "Tasks that have joined, by whether they hold a lease.",
                     count, {{"role", role}, {"state", state}});
    }
  }
  for (const proto::TaskStatus& task : status.tasks()) {
    if (!task.has_silent_seconds()) continue;
    metrics->Gauge("holdfast_job_task_silent_seconds",
                   "Time since the task last renewed its lease.",
                   task.silent_seconds(), {{"task", NameOf(task.task())}});
  }
}

void AddWorkers(const proto::GetStatusResponse& status, Metrics* metrics) {
  int slow = 0;
  for (const proto::TaskStatus& task : status.tasks()) {
    if (task.task().job() == kPsJob) continue;
    const std::string name = NameOf(task.task());
    if (task.pace().seconds_per_push() > 0) {
      metrics->Gauge("holdfast_job_worker_step_seconds",
                     "Mean time of the worker's latest pushes, at most 20.",
                     task.pace().seconds_per_push(), {{"worker", name}});
    }
    if (task.alive() && !task.worker().waiting_for().empty()) {
      metrics->Gauge(
          "holdfast_job_worker_waiting_seconds",
          "How long the worker had been waiting, and for what, when "
          "it last renewed its lease.",
          task.worker().waiting_seconds(),
          {{"worker", name}, {"waiting_for", task.worker().waiting_for()}});
    }
    if (!task.pace().slow()) continue;
    if (++slow > kMaxSlowWorkers) continue;
    metrics->Gauge("holdfast_job_worker_slow",
                   "1 for a worker that takes more than twice the median of "
                   "all workers, or has been silent, or has owed a push, for a "
                   "long time; for the first 4 of them.",
                   1, {{"worker", name}});
  }
  metrics->Gauge("holdfast_job_slow_workers", "Number of slow workers.", slow);
}

}  // namespace

void AddJobMetrics(const proto::GetStatusResponse& status, Metrics* metrics) {
  AddProgress(status, metrics);
  AddContributions(status, metrics);
  if (status.has_step_times()) AddStepTimes(status.step_times(), metrics);
  AddCheckpoints(status, metrics);
  AddTasks(status, metrics);
  AddWorkers(status, metrics);
}

}  // namespace holdfast
