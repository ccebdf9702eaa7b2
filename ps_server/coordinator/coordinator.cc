// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/coordinator.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/job/agreed_facts.h"
#include "common/job/declaration_change.h"
#include "common/job/resumed_declaration.h"
#include "glog/logging.h"
#include "ps_server/coordinator/schedule.h"
#include "ps_server/protocol/request.h"

namespace holdfast {

Coordinator::Coordinator(const Options& options, const Clock* clock,
                         ShardLinks* links, Archive* archive)
    : job_(
          options, clock, links, archive, [this] { Settle(); }, this, this),
      restore_(&job_),
      fence_(&job_),
      save_(&job_),
      commit_(&job_),
      end_(&job_),
      stop_(&job_, &save_),
      patience_(&job_, &restore_, &save_, &end_),
      trace_(&job_),
      decisions_(&job_) {
  job_.step_timer.SetWatch(&trace_);
  const Outbox::Event event(&job_.outbox);
  if (archive != nullptr) TakeUp(job_.options.journal);
}

void Coordinator::TakeUp(const proto::Journal& journal) {
  job_.journal.TakeUp(journal);
  job_.members.TakeUp(journal);
  job_.chronicle.TakeUp(job_.options.history);
  job_.evaluations.TakeUp(journal);
  job_.rates.TakeUp(journal);
  if (journal.has_early_end()) job_.finish = journal.early_end();
  job_.generation = std::max(job_.generation, Generation(journal.generation()));
  if (journal.has_declaration()) {
    if (absl::Status status = job_.declared.TakeUp(journal); !status.ok()) {
      return FailNow(absl::StrCat(
          "what was declared when the job began does not fit this cluster: ",
          status.message()));
    }
  }
  job_.finished_before = journal.finished() && !journal.checkpoints().empty();
  if (job_.finished_before) GoToLastCheckpoint();
  restore_.BeginGeneration("/job:ps/task:0 has started");
}

// ---- A job that was finished before ----

// [J3] The job is DONE, unless there is more to do.
void Coordinator::AdvanceFinishedBefore() {
  if (job_.ended() || restore_.beginning()) return;
  // No worker has joined yet.
  if (job_.clock->Now() - job_.begun > job_.timeouts.Start()) {
    job_.declared.Settle();
  }
  if (!job_.declared.settled()) return;
  job_.finished_before = false;
  if (job_.journal.journal().finished()) return OnFinished();
  restore_.BeginGeneration("the job was finished, and has more to do");
}

// ---- Events ----

void Coordinator::Settle() {
  if (job_.finished_before) AdvanceFinishedBefore();
  restore_.Advance();
  if (stop_.asked()) AdvanceStop();
  if (job_.training()) StartClockWhenReady();
  decisions_.Advance();
  AdvanceEarlyStopping();
  if (job_.at_work() && job_.AllMade()) Conclude();
  StartNext();
  GrantTickets();
  AssignEvaluations();
  if (trace_.Advance()) job_.members.AnswerRenewals();
  if (ticked_at_.has_value()) {
    AnswerDue(*std::exchange(ticked_at_, std::nullopt));
  }
}

void Coordinator::AnswerDue(absl::Time now) {
  if (auto due = job_.step.parked()->TakeDue(now); !due.empty()) {
    // Made once, because it is the same for all, and as long as the list of
    // workers.
    const std::string waiting_for = WaitingFor();
    for (auto& parked : due) {
      job_.outbox.Answer(std::move(parked.reply), NotYetAnswer(waiting_for));
    }
  }
  AnswerTickets(job_.tickets.parked()->TakeDue(now));
}

void Coordinator::StartNext() {
  if (end_.IsDue()) return end_.Start();
  if (job_.running != nullptr) return;
  // Between two operations only, so that the shards agree on the last version.
  if (FailIfDiverged()) return end_.Start();
  for (Operation* operation : operations_) {
    if (operation->IsDue()) return operation->Start();
  }
  if (job_.stopping() && !save_.concluding_since().has_value()) {
    EndStopped();  // without a checkpoint
  }
}

void Coordinator::Tick() {
  const Outbox::Event event(&job_.outbox);
  job_.members.JudgeLeases();
  if (job_.finished_before) AdvanceFinishedBefore();
  patience_.Judge();
  job_.journal.Tick();
  for (Operation* operation : operations_) operation->Tick();
  end_.Tick();
  AnswerPlacements();
  job_.members.AnswerDue();
  save_.AnswerDue();
  stop_.AnswerDue();
  for (auto& parked : parked_evaluations_.TakeDue(job_.clock->Now())) {
    job_.outbox.Answer(std::move(parked.reply),
                       EvaluationAnswer(parked.key.worker));
  }
  ticked_at_ = job_.clock->Now();
  if (*ticked_at_ >= next_look_) Look(*ticked_at_);
}

void Coordinator::OnOwnReport(const proto::PsReport& report) {
  job_.members.OnOwnReport(report);
}

// ---- The way to the first step ----

void Coordinator::Declare(const proto::DeclareRequest& request,
                          Reply<proto::DeclareResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const auto refuse = [&](const absl::Status& status) {
    job_.outbox.Answer(std::move(reply), status);
  };
  const TaskId task = ToTaskId(request.sender().task());
  // A worker with other files may ask how its declaration would differ.
  const bool only_asks =
      request.sender().incarnation() == 0 && job_.declared.has_value();
  if (!only_asks) {
    const auto session = job_.members.FindSession(request.sender());
    if (!session.ok()) return refuse(session.status());
    if (!IsWorker(task)) {
      return refuse(absl::InvalidArgumentError(absl::StrCat(
          task.ToString(), " is not a worker: it may not declare the job")));
    }
    if (job_.state.phase() == proto::FAILED) {
      return refuse(absl::AbortedError(job_.state.reason()));
    }
  }
  const absl::StatusOr<proto::Declaration> complete =
      job_.declared.Complete(request.declaration());
  if (!complete.ok()) return refuse(complete.status());
  if (job_.declared.has_value() && job_.declared.open() && !only_asks) {
    if (absl::Status status = Resume(task, *complete); !status.ok()) {
      refuse(status);
      return AnswerPlacements();
    }
  } else if (job_.declared.has_value()) {
    if (absl::Status status = CheckDeclared(task, *complete, only_asks);
        !status.ok()) {
      // The other workers go on training: this leave does not end the job.
      if (!only_asks && job_.begun_with_journal() &&
          job_.members.IsLive(task)) {
        job_.members.OnLeave(task);
        OnGone(task);
      }
      return refuse(status);
    }
    if (!only_asks && !job_.ended()) {
      const auto added = job_.declared.Agree(complete->agreed());
      if (!added.ok()) return refuse(added.status());
      if (*added) WriteDeclaration();
    }
  } else if (!job_.ended()) {
    if (absl::Status status = job_.declared.Set(*complete); !status.ok()) {
      return refuse(status);
    }
    WriteDeclaration();
  }
  if (only_asks && complete->has_job()) {
    const absl::Status same =
        CompareJobFiles(*job_.declared, complete->job().job_file());
    if (!same.ok()) return refuse(same);
  }
  proto::DeclareResponse response;
  if (!only_asks) response.set_generation(job_.generation.value());
  job_.outbox.Answer(std::move(reply), std::move(response));
  if (!only_asks) job_.members.RetryRegisters(std::nullopt);
}

void Coordinator::WriteDeclaration() {
  if (job_.archive == nullptr) return;
  job_.journal.Change(
      [this](proto::Journal* journal) { job_.declared.AddTo(journal); }, [] {});
}

absl::Status Coordinator::CheckDeclared(const TaskId& task,
                                        const proto::Declaration& complete,
                                        bool only_asks) const {
  HOLDFAST_RETURN_IF_ERROR(
      CheckAgreed(task.ToString(), complete.agreed(), *job_.declared));
  const absl::Status same =
      CheckSameDeclaration(task, *job_.declared, complete);
  if (same.ok() ||
      (job_.begun_with_journal() && job_.declared.IsOfSameFile(complete))) {
    return absl::OkStatus();
  }
  const std::string ways = only_asks ? "" : WaysOutOfChange(*job_.declared);
  return absl::Status(same.code(), absl::StrCat(same.message(), ways));
}

// [J3] A worker declares a job that resumes from a journal.
absl::Status Coordinator::Resume(const TaskId& task,
                                 const proto::Declaration& complete) {
  const auto& checkpoints = job_.journal.journal().checkpoints();
  ResumePoint at;
  at.has_values = !checkpoints.empty();
  if (at.has_values) at.step = checkpoints.rbegin()->step();
  if (absl::Status status =
          CheckAgreed(task.ToString(), complete.agreed(), *job_.declared);
      !status.ok()) {
    job_.declared.Refuse(task, status);
    return status;
  }
  const bool has_facts = HasFacts(job_.declared->agreed(), complete.agreed());
  const auto changes = job_.declared.Resume(complete, at);
  if (!changes.ok()) {
    const absl::Status why = absl::AlreadyExistsError(absl::StrCat(
        task.ToString(),
        " declares a different job than the one in "
        "this checkpoint directory: ",
        Shorten(std::string(changes.status().message()), kMaxTextBytes),
        WaysOutOfChange(*job_.declared)));
    // The workers that wait for the declaration have the same job file. The job
    // fails when the first of them leaves with an error; a script's user may
    // correct it.
    job_.declared.Refuse(task, why);
    return why;
  }
  if (job_.declared.settled() && !has_facts) WriteDeclaration();
  if (job_.declared.settled()) return absl::OkStatus();
  // A job that was ended early, and is given more to do, goes on.
  if (job_.finished_before) job_.finish.reset();
  job_.journal.Change(
      [this](proto::Journal* journal) {
        job_.declared.AddTo(journal);
        journal->set_finished(false);
        if (!job_.finish.has_value()) journal->clear_early_end();
      },
      [this, text = Shorten(absl::StrJoin(*changes, ", "), kMaxTextBytes)] {
        job_.declared.Settle();
        if (!text.empty()) {
          job_.Tell(proto::Event::CHANGED,
                    absl::StrCat("the job continues with changes: ", text));
        }
      });
  return absl::OkStatus();
}

void Coordinator::GetPlacement(const proto::GetPlacementRequest& request,
                               Reply<proto::GetPlacementResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const uint64_t given_through = request.has_values_given_through()
                                     ? request.values_given_through()
                                     : std::numeric_limits<uint64_t>::max();
  if (job_.created || job_.ended() || !job_.declared.refusal().ok() ||
      request.wait_ms() == 0 || parked_placements_.full() ||
      (restore_.wants_values() && given_through < job_.generation.value())) {
    return job_.outbox.Answer(std::move(reply), PlacementAnswer());
  }
  parked_placements_.Park(given_through, std::move(reply),
                          ParkedUntil(job_.clock->Now(), request.wait_ms()));
}

absl::StatusOr<proto::GetPlacementResponse> Coordinator::PlacementAnswer()
    const {
  if (!job_.declared.refusal().ok()) return job_.declared.refusal();
  proto::GetPlacementResponse response;
  response.set_generation(job_.generation.value());
  *response.mutable_state() = job_.state;
  // A worker that joins a stopped job has nothing to read, although the shards
  // are still there; one that joins late when the job is done reads its last
  // values.
  const bool ready = job_.created && !end_.started() &&
                     (!job_.ended() || job_.state.phase() == proto::DONE);
  response.set_ready(ready);
  if (!ready) {
    response.set_waiting_for(WaitingFor());
    response.set_values_wanted(restore_.wants_values());
    if (restore_.wants_values()) {
      *response.mutable_declaration() = *job_.declared;
    }
    return response;
  }
  const std::vector<proto::Slice>& slices = job_.declared.slices();
  const std::vector<std::string>& addresses = job_.members.ps_addresses();
  *response.mutable_declaration() = *job_.declared;
  response.mutable_slices()->Assign(slices.begin(), slices.end());
  response.mutable_ps_addresses()->Assign(addresses.begin(), addresses.end());
  return response;
}

void Coordinator::AnswerPlacements() {
  const bool all =
      job_.created || job_.ended() || !job_.declared.refusal().ok();
  for (auto& parked : all ? parked_placements_.TakeAll()
                          : parked_placements_.TakeDue(job_.clock->Now())) {
    job_.outbox.Answer(std::move(parked.reply), PlacementAnswer());
  }
}

void Coordinator::StartClockWhenReady() {
  if (job_.progress.training_begun().has_value()) return;
  const auto& mode = job_.declared->consistency().synchronous();
  size_t needed = 1;
  if (!job_.declared.asynchronous()) {
    needed = std::min({mode.replicas_to_aggregate(), mode.total_num_replicas(),
                       job_.options.num_workers});
  }
  if (job_.declared.continues() && job_.generation.value() > 1) {
    // The other workers may have been lost for good since the job began.
    needed = job_.declared->lost_workers().min_replicas();
  }
  if (job_.members.num_workers_seen() < needed) return;
  const absl::Time now = job_.clock->Now();
  job_.progress.OnTrainingBegun(now);
  // The first step waits for the workers that are live when it begins.
  job_.CountMembersOfStep();
  OnTraining(now);
}

void Coordinator::OnTraining(absl::Time now) {
  job_.chronicle.OnTraining();
  // Until now the job has been waiting for tasks to start.
  if (job_.step.open()) {
    job_.step_timer.OnOpened(job_.step.number(), now);
    job_.paces.OnStepOpened(job_.step.number(), now);
  }
  const uint64_t step = job_.global_step();
  job_.Tell(proto::Event::TRAINING,
            step == 0 ? std::string("training begins")
                      : absl::StrCat("training resumes from step ", step));
}

// ---- Generations ----

void Coordinator::OnGenerationOver() {
  trace_.OnGenerationOver();
  job_.verdicts.Reset();
  job_.step.Reset();
  job_.tickets.Reset();
  job_.learning = LearningState();
  job_.early_end.reset();
  job_.chronicle.OnGenerationOver();
  job_.step_timer.Reset();
  job_.paces.Reset(job_.clock->Now());
  fence_.Clear();
  save_.Abort();
}

void Coordinator::OnGenerationBegun(const proto::Position& position) {
  if (job_.finished_before) {
    // Nothing is restored, and any task may register.
    job_.members.RetryRegisters(std::nullopt);
    return job_.members.AnswerRenewals();
  }
  job_.progress.GoBack(position);
  job_.chronicle.GoBack(position.step());
  job_.evaluations.GoBack(position.step());
  judge_early_stopping_ = true;
  if (job_.evaluations.decide()) decisions_.OnChanged();
  if (job_.generation.value() > 1) {
    job_.Tell(proto::Event::GENERATION,
              absl::StrCat("generation ", job_.generation.value(),
                           " begins: ", restore_.recovered()));
  }
  // Parked calls name an older generation.
  for (auto& parked : job_.step.parked()->TakeAll()) {
    job_.outbox.Answer(std::move(parked.reply),
                       ContributeAnswer(proto::ABORTED));
  }
  RefuseTickets(job_.tickets.parked()->TakeAll(), proto::ABORTED);
  job_.members.RetryRegisters(std::nullopt);
  job_.members.AnswerRenewals();
  save_.GoBack(position.step());
}

// [G4]
void Coordinator::OnValuesWanted() {
  for (auto& parked :
       parked_placements_.TakeBetween(0, job_.generation.value() - 1)) {
    job_.outbox.Answer(std::move(parked.reply), PlacementAnswer());
  }
}

// [G5]
void Coordinator::OnRestored(const proto::Manifest& from) {
  const proto::Position& position = from.position();
  job_.state.set_phase(proto::TRAINING);
  job_.learning = LearningState(*job_.declared, position);
  save_.OnRestored(from);
  if (job_.declared->examples() == proto::BY_TICKET) {
    job_.tickets.Begin(position);
  }
  if (!job_.declared.asynchronous()) job_.OpenStepAt(job_.progress.committed());
  const absl::Time now = job_.clock->Now();
  job_.progress.OnMoved(now);
  if (job_.progress.training_begun().has_value()) OnTraining(now);
  StartClockWhenReady();
  AnswerPlacements();
  job_.members.AnswerRenewals();
  // [L3] Handles the workers whose leases expired while the job was STARTING.
  if (!job_.declared.continues() || job_.AllMade()) return;
  std::vector<TaskId> lost;
  for (const TaskId& task : job_.members.lost()) {
    if (IsWorker(task) && !job_.members.Find(task)->fenced()) {
      lost.push_back(task);
    }
  }
  for (const TaskId& task : lost) ShutOut(task);
}

// ---- The step ----

void Coordinator::Contribute(const proto::ContributeRequest& request,
                             Reply<proto::ContributeResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const auto decide = [&](proto::Verdict verdict) {
    job_.outbox.Answer(std::move(reply), ContributeAnswer(verdict));
  };
  const auto refuse = [&](const absl::Status& status) {
    job_.outbox.Answer(std::move(reply), status);
  };
  const PushId push{ToWorkerLife(request.sender()),
                    PushSequence(request.sequence())};
  const TaskId& task = push.from.worker;
  if (request.sender().generation() != job_.generation.value()) {
    return decide(proto::ABORTED);
  }
  const auto session = job_.members.FindSession(request.sender());
  if (job_.members.IsFenced(session, request.sender())) {
    return decide(proto::FENCED);
  }
  if (!session.ok()) return refuse(session.status());
  if (!IsWorker(task)) {
    return refuse(absl::InvalidArgumentError(absl::StrCat(
        task.ToString(), " is not a worker: it may not contribute")));
  }
  if (job_.declared.asynchronous()) {
    return refuse(absl::FailedPreconditionError(
        "the job is asynchronous: pushes are applied, not contributed"));
  }
  const absl::Time now = job_.clock->Now();
  // Between two generations the call stays parked until the answer may name the
  // next one.
  if (!restore_.beginning()) {
    AckThrough(push.from,
               std::min(request.acked_through(), request.sequence() - 1));
    if (const auto verdict = job_.verdicts.Find(push)) return decide(*verdict);
    if (job_.state.phase() == proto::FAILED) return decide(proto::ABORTED);
    if (job_.state.phase() == proto::STOPPED) {
      return decide(proto::VERDICT_UNSPECIFIED);
    }
    // All steps were made while the job was being stopped.
    if (!job_.step.open() && job_.state.phase() == proto::DONE) {
      Refuse(push, proto::STALE);
      return decide(proto::STALE);
    }
    // [E2] In a job that is stopping the push waits for the end, without a
    // seat.
    if (!job_.step.open() && !job_.stopping()) {
      return refuse(absl::FailedPreconditionError(
          absl::StrCat("no step is open: waiting for ", WaitingFor())));
    }
  }
  if (job_.step.open()) {
    const uint32_t replica = job_.members.ReplicaOf(task);
    const size_t seated = job_.step.step().num_offers();
    const absl::StatusOr<proto::Verdict> verdict =
        job_.step.Offer(request, push, replica, job_.AllStepsFixed(),
                        job_.tickets, job_.verdicts);
    if (!verdict.ok()) return refuse(verdict.status());
    // Repeated requests are not counted again.
    const bool counts = job_.step.step().num_offers() > seated;
    if (counts || *verdict != proto::VERDICT_UNSPECIFIED) {
      job_.paces.OnOffer(replica, GlobalStep(request.step()), counts, now);
    }
    if (job_.step.step().full()) job_.step_timer.OnComplete(now);
    if (*verdict != proto::VERDICT_UNSPECIFIED) {
      Refuse(push, *verdict);
      return decide(*verdict);
    }
  }
  OpenStep::Parked& waiting = *job_.step.parked();
  auto [earlier, no_room] = waiting.ParkLatest(
      push, std::move(reply), ParkedUntil(now, request.wait_ms()));
  if (no_room) {
    for (auto& parked : waiting.Take(push)) {
      job_.outbox.Answer(std::move(parked.reply), NotYetAnswer(WaitingFor()));
    }
  }
  for (auto& parked : earlier) {
    job_.outbox.Answer(std::move(parked.reply),
                       ContributeAnswer(proto::VERDICT_UNSPECIFIED));
  }
}

void Coordinator::OnStepClosed() {
  // Every parked push fills a seat of the step that has been closed.
  for (auto& parked : job_.step.parked()->TakeAll()) {
    job_.outbox.Answer(std::move(parked.reply),
                       ContributeAnswer(*job_.verdicts.Find(parked.key)));
  }
}

void Coordinator::Refuse(const PushId& push, proto::Verdict verdict) {
  job_.verdicts.Record(push, verdict);
  job_.progress.AddRefused(verdict);
  job_.tickets.Return(push);
}

// A push whose ticket is out is undecided, whatever the worker says.
void Coordinator::AckThrough(const WorkerLife& from, uint64_t sequence) {
  job_.verdicts.AckThrough(from, job_.tickets.LimitAck(from, sequence));
}

proto::ContributeResponse Coordinator::ContributeAnswer(
    proto::Verdict verdict) const {
  proto::ContributeResponse response;
  response.set_generation(job_.generation.value());
  *response.mutable_state() = job_.state;
  response.set_verdict(verdict);
  if (job_.step.open()) response.set_global_step(job_.step.number().value());
  response.set_durable_step(save_.durable_step());
  return response;
}

proto::ContributeResponse Coordinator::NotYetAnswer(
    const std::string& waiting_for) const {
  proto::ContributeResponse response =
      ContributeAnswer(proto::VERDICT_UNSPECIFIED);
  response.set_waiting_for(waiting_for);
  return response;
}

// ---- Checkpoints ----

void Coordinator::Checkpoint(const proto::CheckpointRequest& request,
                             Reply<proto::CheckpointResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  absl::Status status;
  if (job_.state.phase() == proto::FAILED) {
    status = absl::AbortedError(job_.state.reason());
  } else if (job_.archive == nullptr) {
    status = absl::FailedPreconditionError(
        "it was started without a checkpoint directory (--checkpoint_dir)");
  } else if (!job_.declared.has_value()) {
    status = absl::FailedPreconditionError(
        absl::StrCat("there are no variables yet: waiting for ", WaitingFor()));
  }
  if (!status.ok()) return job_.outbox.Answer(std::move(reply), status);
  save_.Checkpoint(request, std::move(reply));
}

}  // namespace holdfast
