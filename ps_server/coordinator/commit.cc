// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/commit.h"

#include <optional>
#include <vector>

namespace holdfast {

Commit::Commit(Job* job)
    : job_(job),
      commit_(&job->speech, {[job](uint32_t ps, const auto& response) {
                               return job->OnAcknowledged(ps, response);
                             },
                             [this] { OnCommitted(); }}) {}

bool Commit::IsDue() const {
  // The first step needs as many offers as the cluster was started with.
  return job_->at_work() && job_->step.open() && !job_->AllMade() &&
         !job_->TooFewWorkers() &&
         job_->evaluations.MayCommit(job_->step.number().value(),
                                     job_->journal.journal()) &&
         job_->step.IsComplete(job_->tickets,
                               job_->progress.training_begun().has_value());
}

void Commit::Start() {
  job_->running = this;
  job_->step_timer.OnClosed(job_->clock->Now());
  job_->paces.OnStepClosed();
  const Step& step = job_->step.step();
  const proto::Declaration& declared = *job_->declared;
  proto::CommitRequest& commit = *commit_.NewRequest();
  *commit.mutable_sender() = job_->Self();
  commit.set_step(step.number().value());
  step.FillIn(declared.consistency().synchronous().aggregation(), &commit);
  job_->learning.OnStep(declared, step,
                        job_->rates.FactorAt(step.number().value()), &commit);
  std::vector<AcceptedPush> accepted;
  accepted.reserve(step.num_offers());
  for (const std::optional<SeatOffer>& offer : step.seats()) {
    if (!offer.has_value()) continue;
    job_->verdicts.Record(offer->push, proto::ACCEPTED);
    job_->tickets.Spend(offer->push);
    accepted.push_back({offer->push.from.worker, offer->examples, offer->loss,
                        /*staleness=*/std::nullopt, offer->not_finite});
  }
  job_->progress.AddStep(accepted);
  if (job_->stopping()) {
    job_->step.Reset();  // [E2]
  } else {
    job_->OpenStepAt(step.number().next());
  }
  commit_.Start();
  job_->director->OnStepClosed();
}

void Commit::OnCommitted() {
  job_->running = nullptr;
  job_->progress.SetCommitted(GlobalStep(commit_.request().step()).next());
  const absl::Time now = job_->clock->Now();
  job_->progress.OnCommit(now);
  job_->step_timer.OnCommitted(now);
  job_->chronicle.OnProgress();
}

}  // namespace holdfast
