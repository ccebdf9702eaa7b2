// SPDX-License-Identifier: Apache-2.0

// What the coordinator tells users: what is being waited for, and how far the
// job is.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/join_some.h"
#include "common/process/version.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// A shorter wait is part of the normal course of a step, and is not reported to
// users.
constexpr absl::Duration kLate = absl::Seconds(2);

}  // namespace

std::string Coordinator::WaitingFor() const {
  if (restore_.beginning()) return restore_.WaitingForJournal();
  if (job_.running != nullptr && job_.running != &end_) {
    return job_.running->WaitingFor();
  }
  const Members& members = job_.members;
  std::vector<std::string> names;
  switch (job_.state.phase()) {
    case proto::STARTING:
      for (const TaskId& ps : members.MissingPs()) {
        names.push_back(members.Describe(ps));
      }
      if (!job_.declared.has_value()) {
        names.push_back(
            absl::StrCat("the declaration by ",
                         members.Describe(members.WorkerOfReplica(0))));
      } else if (job_.declared.open()) {
        names.push_back(absl::StrCat(
            job_.finished_before
                ? "a worker of the finished job, or a declaration with "
                  "more steps by "
                : "the declaration with which the job continues, by ",
            members.Describe(members.WorkerOfReplica(0))));
      }
      return absl::StrJoin(names, ", ");
    case proto::TRAINING:
      if (save_.concluding_since().has_value()) {
        names = save_.UnwrittenShares();
        return absl::StrCat("the last checkpoint",
                            names.empty() ? "" : ", written by ",
                            absl::StrJoin(names, ", "));
      }
      if (std::optional<uint64_t> missing;
          job_.step.open() &&
          !job_.evaluations.MayCommit(job_.step.number().value(),
                                      job_.journal.journal(), &missing)) {
        return WaitingForEvaluation(missing);
      }
      if (job_.TooFewWorkers()) {
        return absl::StrCat(job_.declared->lost_workers().min_replicas(),
                            " live workers (now ", members.num_live_workers(),
                            ")");
      }
      if (job_.tickets.open() &&
          (job_.declared.asynchronous() || job_.tickets.pool().left() == 0)) {
        return WaitingForTickets();
      }
      for (const uint32_t replica : job_.step.step().MissingReplicas()) {
        names.push_back(members.Describe(members.WorkerOfReplica(replica)));
      }
      return JoinSome(names);
    case proto::STOPPING:
      names = save_.UnwrittenShares();
      return absl::StrCat(
          "the checkpoint that it stops with",
          names.empty() ? "" : ", written by ", absl::StrJoin(names, ", "),
          save_.trouble().text.empty() ? "" : "; ", save_.trouble().text);
    case proto::DONE:
    case proto::STOPPED:
      names = end_.LateTasks();
      for (const TaskId& task : members.live_workers()) {
        names.push_back(members.Describe(task));
      }
      for (const TaskId& task : members.live_evaluators()) {
        names.push_back(members.Describe(task));
      }
      return names.empty() ? ""
                           : absl::StrCat("the departure of ", JoinSome(names));
    default:
      return "";
  }
}

std::string Coordinator::WaitingForTickets() const {
  const Members& members = job_.members;
  std::set<TaskId> holders;
  for (const auto& [push, ticket] : job_.tickets.pool().out()) {
    const TaskId& worker = push.from.worker;
    if (!job_.step.open() ||
        !job_.step.step().SeatOf(push, members.ReplicaOf(worker)).has_value()) {
      holders.insert(worker);
    }
  }
  std::string what;
  if (holders.empty()) {
    what = "a ticket to be taken by ";
    for (uint32_t replica = 0; replica < job_.options.num_workers; ++replica) {
      holders.insert(members.WorkerOfReplica(replica));
    }
  }
  std::vector<std::string> names;
  for (const TaskId& worker : holders)
    names.push_back(members.Describe(worker));
  return absl::StrCat(what, JoinSome(names));
}

// Not an event of the machine, because it changes nothing and is answered at
// once.
void Coordinator::GetStatus(const proto::GetStatusRequest& request,
                            Reply<proto::GetStatusResponse> reply) {
  proto::GetStatusResponse status;
  status.set_version(kVersion);
  status.set_generation(job_.generation.value());
  *status.mutable_state() = job_.state;
  if (request.with_job() && job_.declared.has_value() &&
      job_.declared->has_job()) {
    *status.mutable_job() = job_.declared->job();
  }
  status.set_global_step(job_.global_step());
  const auto begun = job_.progress.training_begun();
  const absl::Time since =
      IsOrderlyEnd(job_.state.phase())
          ? end_.ended_at()
          : std::max(begun.has_value()
                         ? std::max(job_.progress.moved_at(), *begun)
                         : job_.begun,
                     restore_.generation_begun());
  const absl::Time now = job_.clock->Now();
  if (now - since > kLate) status.set_waiting_for(WaitingFor());
  status.set_seconds_since_progress(absl::ToDoubleSeconds(now - since));
  status.set_lease_seconds(absl::ToDoubleSeconds(job_.options.lease));
  const RecentRates::Rates rates = job_.chronicle.rates();
  status.set_steps_per_second(rates.steps_per_second);
  status.set_examples_per_second(rates.examples_per_second);
  if (job_.declared.has_value() && !job_.declared.asynchronous()) {
    job_.step_timer.AddTo(status.mutable_step_times());
  }
  job_.progress.AddTo(&status);
  // The result was reported to an earlier life of this ps.
  const proto::EvaluationResult* const evaluated =
      job_.chronicle.history().last_evaluation();
  if (!status.has_evaluation() && evaluated != nullptr) {
    *status.mutable_evaluation() = *evaluated;
  }
  status.set_loss_scale(job_.learning.loss_scale());
  status.set_recovered(job_.generation.value() > 1 ? restore_.recovered() : "");
  save_.AddTo(&status);
  restore_.watch().AddTo(&status);
  job_.members.AddTo(&status);
  for (proto::TaskStatus& entry : *status.mutable_tasks()) {
    const TaskId task = ToTaskId(entry.task());
    if (!IsWorker(task)) continue;
    proto::WorkerPace& pace = *entry.mutable_pace();
    job_.paces.AddTo(job_.members.ReplicaOf(task), &pace);
    if (!job_.training()) pace.set_slow(false);
  }
  AddDecisions(&status);
  if (job_.declared.has_value()) {
    const auto& mode = job_.declared->consistency().synchronous();
    status.set_total_steps(job_.declared->total_steps());
    status.set_replicas_to_aggregate(mode.replicas_to_aggregate());
    status.set_total_num_replicas(mode.total_num_replicas());
  }
  reply(std::move(status));
}

// The two calls below are not events either.
void Coordinator::GetEvents(const proto::GetEventsRequest& request,
                            Reply<proto::GetEventsResponse> reply) {
  reply(job_.chronicle.events().After(request.after()));
}

void Coordinator::GetHistory(const proto::GetHistoryRequest& request,
                             Reply<proto::GetHistoryResponse> reply) {
  proto::GetHistoryResponse history = job_.chronicle.history().Answer(request);
  job_.rates.AddTo(history.mutable_learning_rate_changes());
  reply(std::move(history));
}

void Coordinator::OnToldToStop(const std::string& reason) {
  const Outbox::Event event(&job_.outbox);
  if (job_.ended()) return;
  job_.Tell(
      proto::Event::LEFT,
      absl::StrCat(reason, "; the job continues when it is started again"),
      TaskId{kPsJob, 0});
  // If all steps are on disk already, no further checkpoint would write the
  // history.
  job_.chronicle.Write();
}

// ---- Once a second ----

std::string Coordinator::NameOf(const TaskId& task) const {
  const Member* session = job_.members.Find(task);
  return session == nullptr
             ? task.ToString()
             : absl::StrCat(task.ToString(), " (", session->process, ")");
}

void Coordinator::Look(absl::Time now) {
  next_look_ = now + RecentRates::kEvery;
  if (job_.training() && !job_.AllStepsFixed()) JudgePaces(now);
  save_.TellOfTrouble();
  job_.chronicle.Look();
}

void Coordinator::JudgePaces(absl::Time now) {
  // A task renews its lease three times in the duration of a lease.
  const absl::Duration longest = job_.options.lease * 2 / 3;
  std::set<uint32_t> missing;
  if (job_.step.open()) {
    const std::vector<uint32_t> replicas = job_.step.step().MissingReplicas();
    missing.insert(replicas.begin(), replicas.end());
  }
  std::vector<WorkerPaces::Sight> live;
  std::map<uint32_t, TaskId> names;
  for (const TaskId& worker : job_.members.live_workers()) {
    const Member& session = *job_.members.Find(worker);
    const WorkerLife life{worker, session.incarnation};
    WorkerPaces::Sight sight;
    sight.replica = job_.members.ReplicaOf(worker);
    sight.owes = job_.step.open() ? missing.count(sight.replica) > 0 : true;
    if (job_.tickets.open()) {
      const auto& out = job_.tickets.pool().OutWith(life);
      if (job_.step.open()) {
        // A worker without a ticket may not get another one.
        sight.owes &= !out.empty() || job_.tickets.pool().left() > 0;
      } else if (!out.empty()) {
        sight.granted = out.begin()->second.granted;
      } else {
        // The worker may be held back, or may not have asked for a ticket.
        sight.owes =
            job_.tickets.pool().left() > 0 && !job_.tickets.IsWaiting(life);
      }
    }
    const absl::Duration silent = now - session.renewed_at;
    if (silent > longest && job_.members.MayJudge()) sight.silent = silent;
    names.emplace(sight.replica, worker);
    live.push_back(sight);
  }
  for (const WorkerPaces::Change& change : job_.paces.Judge(live, now)) {
    const TaskId& worker = names.at(change.replica);
    job_.Tell(change.slow ? proto::Event::SLOW : proto::Event::NOT_SLOW,
              absl::StrCat(NameOf(worker),
                           change.slow ? " is slow" : " is no longer slow",
                           change.text.empty() ? "" : ": ", change.text),
              worker);
  }
}

}  // namespace holdfast
