// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/end.h"

#include <algorithm>
#include <optional>

#include "glog/logging.h"
#include "ps_server/protocol/request.h"

namespace holdfast {

End::End(Job* job)
    : job_(job),
      end_(&job->speech,
           // A shard that refuses to end counts as done, because it does not
           // continue either.
           {[](uint32_t ps, const auto& response) { return Heard::kDone; },
            [] {}}) {}

void End::OnStopped() { ended_at_ = job_->clock->Now(); }

void End::OnDone() {
  ended_at_ = job_->clock->Now();
  SetReporter(ChooseReporter());
}

// Returns the chief, unless it has left, or is lost and the job continues
// without it.
TaskId End::ChooseReporter() const {
  const Members& members = job_->members;
  const TaskId chief = members.WorkerOfReplica(0);
  const Member* session = members.Find(chief);
  const bool goes_on = job_->declared.continues();
  const bool comes = session == nullptr
                         ? !goes_on
                         : session->live() || (!goes_on && !session->left());
  if (comes) return chief;
  std::optional<TaskId> first;
  for (const TaskId& task : members.live_workers()) {
    if (!first.has_value() ||
        members.ReplicaOf(task) < members.ReplicaOf(*first)) {
      first = task;
    }
  }
  return first.value_or(chief);
}

void End::SetReporter(const TaskId& worker) {
  job_->state.mutable_reporter()->set_job(worker.job);
  job_->state.mutable_reporter()->set_index(worker.index);
  LOG_IF(INFO, job_->created)
      << "the job is DONE; " << job_->members.Describe(worker)
      << " evaluates the last version, and writes the result";
}

bool End::IsReporter(const TaskId& worker) const {
  return worker == ToTaskId(job_->state.reporter());
}

const Member* End::FindReporter() const {
  return job_->members.Find(ToTaskId(job_->state.reporter()));
}

void End::OnJoined(const TaskId& worker) {
  if (job_->state.phase() != proto::DONE || !job_->declared.continues()) return;
  const Member* reporter = FindReporter();
  const bool missing =
      reporter == nullptr || (!reporter->live() && !reporter->left());
  if (missing && !IsReporter(worker)) SetReporter(worker);
}

// The tasks that may still come to learn that the job is DONE or STOPPED: tasks
// that have not joined, because a short job can be done before its last worker
// has started, and a job that was finished before this process started has not
// seen its other ps; tasks that were waited for when the job ended; and the
// task that has to write the result.
std::vector<std::string> End::LateTasks() const {
  std::vector<std::string> late;
  const Members& members = job_->members;
  const absl::Time now = job_->clock->Now();
  const bool may_join = now - job_->begun <= job_->timeouts.Start();
  for (uint32_t replica = 0; replica < job_->options.num_workers; ++replica) {
    const TaskId worker = members.WorkerOfReplica(replica);
    const Member* session = members.Find(worker);
    if (session == nullptr) {
      if (may_join) late.push_back(members.Describe(worker));
      continue;
    }
    const bool missed = IsReporter(worker) ? !session->left()
                                           : !job_->declared.continues() &&
                                                 !IsTold(worker, *session) &&
                                                 session->lost_at <= ended_at_;
    if (!session->live() && missed &&
        now - session->lost_at <= job_->timeouts.Recovery()) {
      late.push_back(members.Describe(worker));
    }
  }
  for (uint32_t ps = 1; ps < job_->options.num_ps; ++ps) {
    const TaskId task = {kPsJob, ps};
    if (may_join && members.Find(task) == nullptr) {
      late.push_back(members.Describe(task));
    }
  }
  return late;
}

bool End::AwaitsEvaluators() const {
  return !job_->members.live_evaluators().empty() &&
         job_->clock->Now() - ended_at_ <= job_->timeouts.Step();
}

bool End::IsDue() const {
  if (!job_->ended() || started_) return false;
  return job_->state.phase() == proto::FAILED ||
         (job_->members.num_live_workers() == 0 && !AwaitsEvaluators() &&
          LateTasks().empty());
}

// 3.
void End::Start() {
  if (job_->state.phase() == proto::DONE && job_->created) {
    const Member* reporter = FindReporter();
    LOG_IF(WARNING, reporter == nullptr || !reporter->left())
        << "the job is DONE, but has no result: "
        << job_->members.Describe(ToTaskId(job_->state.reporter()))
        << ", which should have written it, is lost";
  }
  if (job_->running != nullptr) job_->running->Stop();
  job_->running = this;
  started_ = true;
  proto::EndRequest& end = *end_.NewRequest();
  *end.mutable_sender() = job_->Self();
  *end.mutable_state() = job_->state;
  end_.Start();
}

bool End::finished() const {
  if (!job_->ended() || !started_) return false;
  const bool patience_over =
      job_->clock->Now() - end_.begun() > job_->options.lease;
  if (patience_over) return true;
  for (uint32_t ps = 0; ps < job_->options.num_ps; ++ps) {
    const bool reachable = ps == 0 || job_->members.IsLive({kPsJob, ps});
    if (!end_.done(ps) && reachable) return false;
  }
  const auto& live = job_->members.live_workers();
  return std::all_of(live.begin(), live.end(), [&](const TaskId& worker) {
    return IsTold(worker, *job_->members.Find(worker));
  });
}

}  // namespace holdfast
