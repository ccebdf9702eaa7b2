// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/fence.h"

#include <optional>

#include "ps_server/protocol/request.h"

namespace holdfast {

Fence::Fence(Job* job)
    : job_(job),
      fence_(&job->speech,
             {[this](uint32_t ps,
                     const absl::StatusOr<proto::FenceResponse>& response) {
                if (response.ok()) applied_.Add(response->applied());
                return job_->OnAcknowledged(ps, response);
              },
              [this] { Resolve(); }}),
      resolve_(&job->speech, {[job](uint32_t ps, const auto& response) {
                                return job->OnAcknowledged(ps, response);
                              },
                              [this] { OnResolved(); }}) {}

// 1.
void Fence::Start() {
  job_->running = this;
  applied_.Clear();
  proto::FenceRequest& fence = *fence_.NewRequest();
  *fence.mutable_sender() = job_->Self();
  for (const WorkerLife& life : due_) {
    proto::WorkerLife& message = *fence.add_lives();
    message.mutable_worker()->set_job(life.worker.job);
    message.mutable_worker()->set_index(life.worker.index);
    message.set_incarnation(life.incarnation.value());
  }
  due_.clear();
  fence_.Start();
}

void Fence::Stop() {
  fence_.Stop();
  resolve_.Stop();
}

void Fence::Tick() {
  fence_.SendDue();
  resolve_.SendDue();
}

std::string Fence::WaitingFor() const {
  return fence_.running() ? fence_.WaitingFor() : resolve_.WaitingFor();
}

// 2.
void Fence::Resolve() {
  proto::ResolveRequest& resolve = *resolve_.NewRequest();
  *resolve.mutable_sender() = job_->Self();
  *resolve.mutable_lives() = fence_.request().lives();
  for (const auto& [push, applied] : applied_.pushes()) {
    const std::optional<TicketPool::Out> ticket = job_->tickets.Find(push);
    // The push is booked already, so every shard has applied it.
    if (!ticket.has_value()) continue;
    applied_.Tell(push, ticket->index, *job_->declared, job_->learning,
                  job_->rates.FactorAt(ticket->index),
                  resolve.mutable_applied());
  }
  resolve_.Start();
}

// 3.
void Fence::OnResolved() {
  job_->running = nullptr;
  for (const proto::WorkerLife& message : resolve_.request().lives()) {
    const WorkerLife life = ToWorkerLife(message);
    for (const auto& [sequence, ticket] : job_->tickets.OutWith(life)) {
      const PushId push{life, sequence};
      if (!applied_.Contains(push)) {
        job_->tickets.Return(push);
        job_->progress.AddRefused(proto::FENCED);
        continue;
      }
      job_->tickets.Spend(push);
      applied_.Count(push, ticket, &job_->progress, &job_->learning);
      job_->progress.OnMoved(job_->clock->Now());
      job_->progress.OnCommit(job_->clock->Now());
    }
    job_->verdicts.Forget(life);
  }
  if (job_->declared.asynchronous()) {
    job_->progress.SetCommitted(GlobalStep(job_->tickets.pool().spent()));
    job_->chronicle.OnProgress();
  }
}

}  // namespace holdfast
