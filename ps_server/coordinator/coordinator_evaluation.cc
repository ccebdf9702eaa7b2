// SPDX-License-Identifier: Apache-2.0

// The calls that evaluate the job and change it while it runs: evaluations,
// early stopping, and the learning rate (docs/evaluation.md).
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/evaluation_figures.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// Limits on EvaluationResult.metrics.
constexpr int kMostMetrics = 32;
constexpr size_t kMaxMetricNameBytes = 64;

absl::Status CheckMetrics(const TaskId& task,
                          const proto::EvaluationResult& result) {
  if (result.metrics_size() > kMostMetrics) {
    return absl::InvalidArgumentError(
        absl::StrCat(task.ToString(), " reports ", result.metrics_size(),
                     " metrics, but may report at most ", kMostMetrics));
  }
  for (const auto& [name, value] : result.metrics()) {
    if (name.empty() || name.size() > kMaxMetricNameBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          task.ToString(), " reports a metric with a name of ", name.size(),
          " bytes; it must have 1 to ", kMaxMetricNameBytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// ---- Evaluators ----

void Coordinator::NextEvaluation(const proto::NextEvaluationRequest& request,
                                 Reply<proto::NextEvaluationResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const TaskId task = ToTaskId(request.sender().task());
  absl::Status status;
  if (!IsEvaluator(task)) {
    status = absl::InvalidArgumentError(
        absl::StrCat(task.ToString(), " is not an evaluator"));
  } else if (job_.archive == nullptr) {
    status = absl::FailedPreconditionError(
        "/job:ps/task:0 was started without a checkpoint directory "
        "(--checkpoint_dir): there are no checkpoints to evaluate");
  } else {
    status = job_.members.FindLife(request.sender()).status();
  }
  if (!status.ok()) return job_.outbox.Answer(std::move(reply), status);
  // The evaluator has given up its earlier assignment.
  job_.evaluations.Release(task);
  auto [earlier, no_room] = parked_evaluations_.ParkLatest(
      ToWorkerLife(request.sender()), std::move(reply),
      ParkedUntil(job_.clock->Now(), request.wait_ms()));
  for (auto& parked : earlier) {
    job_.outbox.Answer(std::move(parked.reply), EvaluationAnswer(task));
  }
  AssignEvaluations();
  if (request.wait_ms() == 0 || no_room) {
    for (auto& parked :
         parked_evaluations_.Take(ToWorkerLife(request.sender()))) {
      job_.outbox.Answer(std::move(parked.reply), EvaluationAnswer(task));
    }
  }
}

void Coordinator::AssignEvaluations() {
  if (parked_evaluations_.empty()) return;
  const bool done = job_.state.phase() == proto::DONE;
  if (!job_.ended_early() && !restore_.beginning()) {
    Evaluations::Moment moment;
    moment.now = job_.clock->Now();
    moment.training_begun = job_.progress.training_begun();
    moment.done = done;
    while (const auto* parked = parked_evaluations_.Next(0)) {
      const auto next =
          job_.evaluations.NextDue(job_.journal.journal(), moment);
      if (!next.has_value()) break;
      const TaskId evaluator = parked->key.worker;
      job_.evaluations.Assign(evaluator, *next, moment.now);
      auto call = parked_evaluations_.TakeCall(parked);
      job_.outbox.Answer(std::move(call.reply), EvaluationAnswer(evaluator));
    }
  }
  // The last report may make another evaluator's checkpoint the last one.
  if (!job_.ended()) return;
  for (auto& parked : parked_evaluations_.TakeAll()) {
    job_.outbox.Answer(std::move(parked.reply),
                       EvaluationAnswer(parked.key.worker));
  }
}

proto::NextEvaluationResponse Coordinator::EvaluationAnswer(
    const TaskId& evaluator) const {
  proto::NextEvaluationResponse response;
  response.set_generation(job_.generation.value());
  *response.mutable_state() = job_.state;
  const auto& assigned = job_.evaluations.assigned();
  if (const auto found = assigned.find(evaluator); found != assigned.end()) {
    *response.mutable_checkpoint() = found->second;
  }
  return response;
}

void Coordinator::ReportEvaluation(
    const proto::ReportEvaluationRequest& request,
    Reply<proto::ReportEvaluationResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const TaskId task = ToTaskId(request.sender().task());
  const bool of_checkpoint = request.has_checkpoint();
  const auto session = of_checkpoint
                           ? job_.members.FindLife(request.sender())
                           : job_.members.FindSession(request.sender());
  absl::Status status = session.status();
  status.Update(CheckMetrics(task, request.result()));
  if (of_checkpoint && request.result().step() != request.checkpoint().step()) {
    status.Update(absl::InvalidArgumentError(absl::StrCat(
        task.ToString(), " reports step ", request.result().step(),
        " for the checkpoint of step ", request.checkpoint().step())));
  }
  if (!status.ok()) return job_.outbox.Answer(std::move(reply), status);
  auto answer = [this, task, of_checkpoint,
                 reply = std::move(reply)](const absl::Status& saved) mutable {
    if (of_checkpoint) job_.evaluations.Release(task);
    if (!saved.ok()) return job_.outbox.Answer(std::move(reply), saved);
    proto::ReportEvaluationResponse response;
    response.set_generation(job_.generation.value());
    job_.outbox.Answer(std::move(reply), std::move(response));
  };
  // A checkpoint that was damaged, or rolled back by a recovery, no longer
  // exists.
  const proto::CheckpointName* const there =
      FindCheckpoint(job_.journal.journal(), request.checkpoint().step());
  if (of_checkpoint &&
      (there == nullptr || !SameCheckpoint(*there, request.checkpoint()))) {
    return answer(absl::OkStatus());
  }
  OnEvaluation(request.result(), /*by_evaluator=*/of_checkpoint);
  // The journal is no longer written once the job has ended early.
  if (!job_.evaluations.decide() || job_.ended_early()) {
    return answer(absl::OkStatus());
  }
  judge_early_stopping_ = true;
  decisions_.OnChanged(std::move(answer));
}

void Coordinator::OnEvaluation(const proto::EvaluationResult& result,
                               bool by_evaluator) {
  job_.progress.OnEvaluation(result);
  job_.evaluations.Add(result, by_evaluator);
  if (!job_.chronicle.OnEvaluation(result)) return;  // reported before
  std::string text = absl::StrCat("evaluation of step ", result.step(),
                                  ": loss ", result.loss());
  for (const EvaluationFigure& figure : FiguresOf(result)) {
    absl::StrAppend(&text, ", ", figure.words, " ", figure.value);
  }
  job_.Tell(proto::Event::EVALUATION, text);
}

// ---- Early stopping ----

void Coordinator::AdvanceEarlyStopping() {
  if (!job_.training()) return;
  if (job_.early_end.has_value()) {
    if (!job_.declared.asynchronous() && job_.AllStepsFixed()) {
      RefuseContributions();
    }
    return;
  }
  if (!decisions_.saved() || job_.AllStepsFixed()) return;
  if (job_.finish.has_value()) {
    const uint64_t end = EndEarly(0);
    const std::string at =
        absl::StrCat(" at step ", end, " of ", job_.declared->total_steps());
    return job_.Tell(
        proto::Event::EARLY_STOPPING,
        job_.finish->step() > end
            ? absl::StrCat("the job is done", at,
                           ", to which it has gone back: ", job_.finish->by(),
                           " has ended it at step ", job_.finish->step())
            : absl::StrCat(job_.finish->by(), " has ended the job", at));
  }
  if (!judge_early_stopping_) return;
  judge_early_stopping_ = false;
  const std::optional<uint64_t> after = job_.evaluations.StopAfter();
  if (!after.has_value()) return;
  const uint64_t fixed = job_.evaluations.fixed_every();
  const uint64_t end = EndEarly(fixed > 0 ? *after + fixed : 0);
  const auto status = job_.evaluations.status();
  job_.Tell(proto::Event::EARLY_STOPPING,
            absl::StrCat("evaluations have not improved since step ",
                         status->best_step(), ": the job is done at step ", end,
                         " of ", job_.declared->total_steps()));
}

uint64_t Coordinator::EndEarly(uint64_t least) {
  if (job_.declared.asynchronous()) {
    job_.tickets.Seal();
    job_.early_end = job_.tickets.pool().next();
  } else {
    job_.early_end = std::max(job_.step.number().value(), least);
    if (job_.AllStepsFixed()) RefuseContributions();
  }
  return *job_.early_end;
}

void Coordinator::RefuseContributions() {
  for (auto& parked : job_.step.parked()->TakeAll()) {
    Refuse(parked.key, proto::STALE);
    job_.outbox.Answer(std::move(parked.reply), ContributeAnswer(proto::STALE));
  }
}

std::string Coordinator::WaitingForEvaluation(
    std::optional<uint64_t> missing) const {
  if (!missing.has_value()) {
    return absl::StrCat("the checkpoint of step ", job_.step.number().value(),
                        ", which has yet to be evaluated");
  }
  const auto& live = job_.members.live_evaluators();
  if (!live.empty()) {
    return absl::StrCat("the evaluation of step ", *missing, " by ",
                        job_.members.Describe(*live.begin()));
  }
  return absl::StrCat("the evaluation of step ", *missing,
                      " by an evaluator, but none has joined "
                      "(early_stopping.at_fixed_steps needs one)");
}

// ---- The learning rate ----

void Coordinator::SetLearningRate(const proto::SetLearningRateRequest& request,
                                  Reply<proto::SetLearningRateResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const auto refuse = [&](const absl::Status& status) {
    job_.outbox.Answer(std::move(reply), status);
  };
  if (job_.state.phase() == proto::FAILED) {
    return refuse(absl::AbortedError(job_.state.reason()));
  }
  if (job_.ended() || !job_.created) {
    return refuse(absl::FailedPreconditionError(
        job_.ended() ? "the job has ended"
                     : absl::StrCat("the job is still starting, and waits for ",
                                    WaitingFor(), "; try again later")));
  }
  // The scalars of earlier steps have been sent to the shards, or may have
  // been.
  uint64_t first = job_.progress.committed().value();
  if (job_.step.open()) first = job_.step.number().value();
  if (job_.tickets.open() && job_.declared.asynchronous()) {
    first = job_.tickets.pool().next();
  }
  const uint64_t step = request.has_at_step() ? request.at_step() : first;
  if (step < first) {
    return refuse(absl::FailedPreconditionError(absl::StrCat(
        "step ", step, " is over: the job is at step ", first,
        "; name a later step, or none to use the first possible one")));
  }
  if (absl::Status status = job_.rates.Add(step, request.factor());
      !status.ok()) {
    return refuse(status);
  }
  job_.Tell(proto::Event::LEARNING_RATE,
            absl::StrCat("an operator has set the learning rate's factor to ",
                         request.factor(), " from step ", step, " on"));
  decisions_.OnChanged([this, step, reply = std::move(reply)](
                           const absl::Status& saved) mutable {
    if (!saved.ok()) return job_.outbox.Answer(std::move(reply), saved);
    proto::SetLearningRateResponse response;
    response.set_generation(job_.generation.value());
    response.set_step(step);
    job_.outbox.Answer(std::move(reply), std::move(response));
  });
}

// ---- For users ----

void Coordinator::AddDecisions(proto::GetStatusResponse* status) const {
  const bool asynchronous = job_.tickets.open() && job_.declared.asynchronous();
  status->set_learning_rate_factor(job_.rates.FactorAt(
      asynchronous ? job_.tickets.pool().next() : job_.global_step()));
  job_.rates.AddTo(status->mutable_learning_rate_changes());
  for (const auto& [task, name] : job_.evaluations.assigned()) {
    *status->add_evaluating() = name;
  }
  *status->mutable_best() = job_.journal.journal().best();
  if (const auto early = job_.evaluations.status(); early.has_value()) {
    *status->mutable_early_stopping() = *early;
    status->mutable_early_stopping()->set_stop_at(job_.early_end.value_or(0));
  }
}

}  // namespace holdfast
