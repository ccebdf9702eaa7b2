// What the coordinator tells people: what is waited for, and how far the job
// is.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/version.h"
#include "ps_server/coordinator/coordinator.h"

namespace holdfast {
namespace {

// A wait shorter than this is the normal course of a step, and not told to
// people.
constexpr absl::Duration kLate = absl::Seconds(2);
// Of the tasks that are waited for, those that an answer names.
constexpr size_t kMostNamed = 20;

// Beyond some, how many more there are.
std::string JoinSome(const std::vector<std::string>& names) {
  if (names.size() <= kMostNamed) return absl::StrJoin(names, ", ");
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + kMostNamed, ", "), " and ",
      names.size() - kMostNamed, " more");
}

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
      }
      return absl::StrJoin(names, ", ");
    case proto::TRAINING:
      if (save_.concluding_since().has_value()) {
        names = save_.UnwrittenShares();
        return absl::StrCat("the last checkpoint",
                            names.empty() ? "" : ", written by ",
                            absl::StrJoin(names, ", "));
      }
      if (job_.TooFewWorkers()) {
        return absl::StrCat(job_.declared->lost_workers().min_replicas(),
                            " workers, of which ", members.num_live_workers(),
                            " are there");
      }
      if (job_.tickets.open() &&
          (job_.declared.asynchronous() || job_.tickets.pool().left() == 0)) {
        return WaitingForTickets();
      }
      for (const uint32_t replica : job_.step.step().MissingReplicas()) {
        names.push_back(members.Describe(members.WorkerOfReplica(replica)));
      }
      return JoinSome(names);
    case proto::DONE:
      names = end_.LateTasks();
      for (const TaskId& task : members.live_workers()) {
        names.push_back(members.Describe(task));
      }
      return names.empty() ? ""
                           : absl::StrCat("the leave of ", JoinSome(names));
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

// No event: it changes nothing, and is answered at once.
void Coordinator::GetStatus(const proto::GetStatusRequest& request,
                            Reply<proto::GetStatusResponse> reply) {
  proto::GetStatusResponse status;
  status.set_version(kVersion);
  status.set_generation(job_.generation.value());
  *status.mutable_state() = job_.state;
  // As workers are told: verdicts come before the shards have committed.
  status.set_global_step(job_.step.open() ? job_.step.number().value()
                                          : job_.progress.committed().value());
  const auto begun = job_.progress.training_begun();
  const absl::Time since =
      job_.state.phase() == proto::DONE
          ? end_.done_at()
          : std::max(begun.has_value()
                         ? std::max(job_.progress.moved_at(), *begun)
                         : job_.begun,
                     restore_.generation_begun());
  if (job_.clock->Now() - since > kLate) status.set_waiting_for(WaitingFor());
  job_.progress.AddTo(&status);
  status.set_loss_scale(job_.learning.loss_scale());
  status.set_recovered(job_.generation.value() > 1 ? restore_.recovered() : "");
  save_.AddTo(&status);
  restore_.watch().AddTo(&status);
  for (const auto& [task, session] : job_.members.sessions()) {
    proto::TaskStatus& entry = *status.add_tasks();
    entry.mutable_task()->set_job(task.job);
    entry.mutable_task()->set_index(task.index);
    entry.set_incarnation(session.incarnation.value());
    entry.set_process(session.process);
    entry.set_alive(session.live());
    if (session.input_wait.has_value()) {
      *entry.mutable_input_wait() = *session.input_wait;
    }
  }
  if (job_.declared.has_value()) {
    const auto& mode = job_.declared->consistency().synchronous();
    status.set_total_steps(job_.declared->total_steps());
    status.set_replicas_to_aggregate(mode.replicas_to_aggregate());
    status.set_total_num_replicas(mode.total_num_replicas());
  }
  reply(std::move(status));
}

}  // namespace holdfast
