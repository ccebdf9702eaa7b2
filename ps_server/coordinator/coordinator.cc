#include "ps_server/coordinator/coordinator.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/declaration_change.h"
#include "glog/logging.h"
#include "ps_server/coordinator/schedule.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// Of why a job has failed, which all are told; a task's last words may be long.
constexpr size_t kMaxReasonBytes = 4000;

}  // namespace

Coordinator::Coordinator(const Options& options, const Clock* clock,
                         ShardLinks* links, Archive* archive)
    : job_(
          options, clock, links, archive, [this] { Settle(); }, this, this),
      restore_(&job_),
      fence_(&job_),
      save_(&job_),
      commit_(&job_),
      end_(&job_),
      patience_(&job_, &restore_, &save_, &end_),
      trace_(&job_) {
  job_.step_timer.SetWatch(&trace_);
  const Outbox::Event event(&job_.outbox);
  if (archive != nullptr) TakeUp(job_.options.journal);
}

void Coordinator::TakeUp(const proto::Journal& journal) {
  job_.journal.TakeUp(journal);
  job_.members.TakeUp(journal);
  job_.events.TakeUp(job_.options.history);
  job_.history.TakeUp(job_.options.history);
  job_.generation = std::max(job_.generation, Generation(journal.generation()));
  if (journal.has_declaration()) job_.declared.TakeUp(journal);
  if (journal.finished() && !journal.checkpoints().empty()) {
    return OnFinished();
  }
  if (job_.declared.has_value()) {
    // The cluster may be another.
    const proto::Declaration declaration = *job_.declared;
    absl::Status status = job_.declared.Complete(declaration).status();
    status.Update(job_.declared.Set(declaration));
    if (!status.ok()) {
      return FailNow(absl::StrCat(
          "what was declared when the job began does not fit this cluster: ",
          status.message()));
    }
  }
  restore_.BeginGeneration("/job:ps/task:0 has started");
}

// ---- Events ----

void Coordinator::Settle() {
  restore_.Advance();
  if (job_.training()) {
    StartClockWhenReady();
    if (job_.AllMade()) Conclude();
  }
  StartNext();
  GrantTickets();
  if (trace_.Advance()) job_.members.AnswerRenewals();
  if (ticked_at_.has_value()) {
    AnswerDue(*std::exchange(ticked_at_, std::nullopt));
  }
}

void Coordinator::AnswerDue(absl::Time now) {
  if (auto due = job_.step.parked()->TakeDue(now); !due.empty()) {
    // The same for all of them, and as long as the list of workers.
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
  // Between two operations, so that the shards agree on the last version.
  if (FailIfDiverged()) return end_.Start();
  for (Operation* operation : operations_) {
    if (operation->IsDue()) return operation->Start();
  }
}

bool Coordinator::FailIfDiverged() {
  if (!job_.training() || !job_.learning.diverged()) return false;
  FailNow(job_.learning.DescribeDivergence(job_.progress.committed()));
  return true;
}

// [C5]
void Coordinator::Conclude() {
  if (FailIfDiverged()) return;
  if (job_.archive == nullptr) return OnFinished();
  save_.Conclude();
}

void Coordinator::Tick() {
  const Outbox::Event event(&job_.outbox);
  job_.members.JudgeLeases();
  patience_.Judge();
  job_.journal.Tick();
  for (Operation* operation : operations_) operation->Tick();
  end_.Tick();
  AnswerPlacements();
  job_.members.AnswerDue();
  save_.AnswerDue();
  ticked_at_ = job_.clock->Now();
  if (*ticked_at_ >= next_look_) Look(*ticked_at_);
}

void Coordinator::OnOwnReport(const proto::PsReport& report) {
  job_.members.OnOwnReport(report);
}

// ---- Members ----

void Coordinator::Register(const proto::RegisterRequest& request,
                           Reply<proto::RegisterResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  job_.members.Register(request, std::move(reply));
}

void Coordinator::RenewLease(const proto::RenewLeaseRequest& request,
                             Reply<proto::RenewLeaseResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  job_.members.RenewLease(request, std::move(reply));
}

void Coordinator::Leave(const proto::LeaveRequest& request,
                        Reply<proto::LeaveResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  // It may not have heard of the generation.
  const absl::StatusOr<const Member*> session =
      job_.members.FindLife(request.sender());
  if (!session.ok()) {
    return job_.outbox.Answer(std::move(reply), session.status());
  }
  const WorkerLife life = ToWorkerLife(request.sender());
  if ((*session)->live()) {
    if (!request.error().empty()) {
      if (!job_.ended()) {
        job_.Tell(proto::Event::LEFT,
                  absl::StrCat(NameOf(life.worker),
                               " left before the end: ", request.error()),
                  life.worker);
      }
      FailUnlessFinishing(
          absl::StrCat(job_.members.Describe(life.worker),
                       " left before the end: ", request.error()));
    }
    job_.members.OnLeave(life.worker);
    if (job_.ended() || job_.AllStepsFixed()) end_.OnTold(life);
    OnGone(life.worker);
  }
  proto::LeaveResponse response;
  *response.mutable_state() = job_.state;
  job_.outbox.Answer(std::move(reply), std::move(response));
  job_.members.RetryRegisters(life.worker);
}

absl::Status Coordinator::CheckDigests(const TaskId& task,
                                       const proto::RegisterRequest& request) {
  return job_.declared.CheckDigests(task, request,
                                    job_.journal.journal().has_declaration());
}

void Coordinator::OnReplaced(const TaskId& task) {
  if (IsWorker(task) && job_.created && !job_.ended() &&
      !job_.members.Find(task)->fenced()) {
    ShutOut(task);
  }
}

void Coordinator::OnJoined(const TaskId& task, bool again) {
  const Member& session = *job_.members.Find(task);
  if (!job_.ended()) {
    job_.Tell(proto::Event::JOINED, absl::StrCat(NameOf(task), " joined"),
              task);
  }
  if (IsWorker(task)) {
    job_.paces.OnJoined(job_.members.ReplicaOf(task), session.renewed_at);
    job_.tickets.OnJoined({task, session.incarnation},
                          job_.members.ReplicaOf(task));
    return end_.OnJoined(task);
  }
  job_.outbox.Send([links = job_.links, ps = task.index,
                    address = job_.members.ps_addresses()[task.index]] {
    links->SetAddress(ps, address);
  });
  // [R4] A shard that may have had state of this generation has lost it.
  if (again && (job_.created || job_.running == &restore_)) {
    restore_.BeginGeneration(
        absl::StrCat(task.ToString(), " (", session.process,
                     ") has started anew, without its state"));
  }
}

void Coordinator::OnBack(const TaskId& task) {
  if (IsWorker(task)) job_.tickets.SetLive(task, true);
  job_.Tell(proto::Event::BACK, absl::StrCat(NameOf(task), " is back"), task);
  patience_.OnBack();
}

void Coordinator::OnLost(const TaskId& task) { OnGone(task); }

void Coordinator::OnGone(const TaskId& task) {
  if (IsWorker(task)) job_.tickets.SetLive(task, false);
  if (job_.ended()) return;
  const bool left = job_.members.Find(task)->left();
  const std::string what =
      left
          ? absl::StrCat(NameOf(task), " left before the end")
          : absl::StrCat(NameOf(task), " is lost: nothing was heard of it for ",
                         absl::FormatDuration(job_.options.lease));
  const auto tell = [&](const std::string& consequence) {
    job_.Tell(left ? proto::Event::LEFT : proto::Event::LOST,
              absl::StrCat(what, consequence), task);
  };
  if (job_.AllStepsFixed() && IsWorker(task)) {
    return tell(", with nothing more to do");
  }
  if (IsWorker(task) && job_.declared.continues()) {
    tell("; the job goes on without it");
    if (job_.created) ShutOut(task);
    return;
  }
  if (!IsWorker(task) && job_.archive == nullptr) {
    tell("");
    return FailUnlessFinishing(
        absl::StrCat(what,
                     ", and there are no checkpoints to go on "
                     "from (--checkpoint_dir)"));
  }
  const absl::Duration recovery = job_.timeouts.Recovery();
  if (recovery == absl::ZeroDuration()) {
    tell("");
    return FailUnlessFinishing(what);
  }
  tell(absl::StrCat("; the job waits for it, ", absl::FormatDuration(recovery),
                    " at most"));
}

void Coordinator::ShutOut(const TaskId& worker) {
  job_.members.Fence(worker);
  job_.tickets.SetLive(worker, false);
  const WorkerLife life{worker, job_.members.Find(worker)->incarnation};
  job_.Tell(proto::Event::FENCED,
            absl::StrCat(NameOf(worker), " is shut out",
                         job_.declared.continues() ? "; the job goes on" : ""),
            worker);
  fence_.Add(life);
  job_.step.Remove(life);
  for (auto& parked : job_.step.TakeOf(life)) {
    Refuse(parked.key, proto::FENCED);
    job_.outbox.Answer(std::move(parked.reply),
                       ContributeAnswer(proto::FENCED));
  }
  RefuseTickets(job_.tickets.TakeOf(life), proto::FENCED);
}

void Coordinator::Expel(const TaskId& worker, const absl::Status& why) {
  LOG(ERROR) << job_.members.Describe(worker)
             << " is not to be believed: " << why.message();
  ShutOut(worker);
  job_.members.RetryRegisters(worker);
}

// ---- The way to the first step ----

void Coordinator::Declare(const proto::DeclareRequest& request,
                          Reply<proto::DeclareResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const auto refuse = [&](const absl::Status& status) {
    job_.outbox.Answer(std::move(reply), status);
  };
  const TaskId task = ToTaskId(request.sender().task());
  // A worker whose files differ may ask how what it would declare differs.
  const bool only_asks =
      request.sender().incarnation() == 0 && job_.declared.has_value();
  if (!only_asks) {
    const auto session = job_.members.FindSession(request.sender());
    if (!session.ok()) return refuse(session.status());
    if (!IsWorker(task)) {
      return refuse(absl::InvalidArgumentError(
          absl::StrCat(task.ToString(), " is no worker: it may not declare")));
    }
    if (job_.state.phase() == proto::FAILED) {
      return refuse(absl::AbortedError(job_.state.reason()));
    }
  }
  const absl::StatusOr<proto::Declaration> complete =
      job_.declared.Complete(request.declaration());
  if (!complete.ok()) return refuse(complete.status());
  if (job_.declared.has_value()) {
    const absl::Status same =
        CheckSameDeclaration(task, *job_.declared, *complete);
    if (!same.ok()) {
      // One that only asks has been told already.
      const std::string ways = only_asks ? "" : WaysOutOfChange(*job_.declared);
      return refuse(
          absl::Status(same.code(), absl::StrCat(same.message(), ways)));
    }
  } else {
    if (absl::Status status = job_.declared.Set(*complete); !status.ok()) {
      return refuse(status);
    }
    if (job_.archive != nullptr) {
      job_.journal.Change(
          [this](proto::Journal* journal) { job_.declared.AddTo(journal); },
          [] {});
    }
  }
  proto::DeclareResponse response;
  if (!only_asks) response.set_generation(job_.generation.value());
  job_.outbox.Answer(std::move(reply), std::move(response));
  if (!only_asks) job_.members.RetryRegisters(std::nullopt);
}

void Coordinator::GetPlacement(const proto::GetPlacementRequest& request,
                               Reply<proto::GetPlacementResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const uint64_t given_through = request.has_values_given_through()
                                     ? request.values_given_through()
                                     : std::numeric_limits<uint64_t>::max();
  if (job_.created || job_.ended() || request.wait_ms() == 0 ||
      parked_placements_.full() ||
      (restore_.wants_values() && given_through < job_.generation.value())) {
    return job_.outbox.Answer(std::move(reply), PlacementAnswer());
  }
  parked_placements_.Park(given_through, std::move(reply),
                          ParkedUntil(job_.clock->Now(), request.wait_ms()));
}

proto::GetPlacementResponse Coordinator::PlacementAnswer() const {
  proto::GetPlacementResponse response;
  response.set_generation(job_.generation.value());
  *response.mutable_state() = job_.state;
  response.set_ready(job_.created);
  if (!job_.created) {
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
  for (auto& parked : job_.created || job_.ended()
                          ? parked_placements_.TakeAll()
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
    // Others may be lost for good since the job began.
    needed = job_.declared->lost_workers().min_replicas();
  }
  if (job_.members.num_workers_seen() < needed) return;
  const absl::Time now = job_.clock->Now();
  job_.progress.OnTrainingBegun(now);
  // The first step waits for those that it could begin with.
  job_.CountMembersOfStep();
  OnTraining(now);
}

void Coordinator::OnTraining(absl::Time now) {
  job_.rates.Begin(now, job_.Reached());
  // It waited for tasks to start until here.
  if (job_.step.open()) {
    job_.step_timer.OnOpened(job_.step.number(), now);
    job_.paces.OnStepOpened(job_.step.number(), now);
  }
  const uint64_t step = job_.global_step();
  job_.Tell(proto::Event::TRAINING,
            step == 0 ? std::string("training begins")
                      : absl::StrCat("training goes on from step ", step));
}

// ---- Generations ----

void Coordinator::OnGenerationOver() {
  trace_.OnGenerationOver();
  job_.verdicts.Reset();
  job_.step.Reset();
  job_.tickets.Reset();
  job_.learning = LearningState();
  job_.rates.Reset();
  job_.step_timer.Reset();
  job_.paces.Reset(job_.clock->Now());
  fence_.Clear();
  save_.Abort();
}

void Coordinator::OnGenerationBegun(const proto::Position& position) {
  job_.progress.GoBack(position);
  job_.history.GoBack(position.step());
  if (job_.generation.value() > 1) {
    job_.Tell(proto::Event::GENERATION,
              absl::StrCat("generation ", job_.generation.value(),
                           " begins: ", restore_.recovered()));
  }
  // What was parked is of an older generation.
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
void Coordinator::OnRestored(const proto::Position& position) {
  job_.state.set_phase(proto::TRAINING);
  job_.learning = LearningState(*job_.declared, position);
  save_.OnRestored(position.step());
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
  // [L3] Those whose leases ran out while the job was STARTING.
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
    return refuse(absl::InvalidArgumentError(
        absl::StrCat(task.ToString(), " is no worker: it may not contribute")));
  }
  if (job_.declared.asynchronous()) {
    return refuse(absl::FailedPreconditionError(
        "the job is asynchronous: pushes are applied, not contributed"));
  }
  const absl::Time now = job_.clock->Now();
  // Between two generations it waits, to be told of the next one.
  if (!restore_.beginning()) {
    AckThrough(push.from,
               std::min(request.acked_through(), request.sequence() - 1));
    if (const auto verdict = job_.verdicts.Find(push)) return decide(*verdict);
    if (job_.state.phase() == proto::FAILED) return decide(proto::ABORTED);
    if (!job_.step.open()) {
      return refuse(absl::FailedPreconditionError(
          absl::StrCat("no step is open: waiting for ", WaitingFor())));
    }
    const uint32_t replica = job_.members.ReplicaOf(task);
    const size_t seated = job_.step.step().num_offers();
    const absl::StatusOr<proto::Verdict> verdict =
        job_.step.Offer(request, push, replica, job_.AllStepsFixed(),
                        job_.tickets, job_.verdicts);
    if (!verdict.ok()) return refuse(verdict.status());
    // Not one that is asked for again.
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
  // All that are parked fill seats of the step that is closed.
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

// What is out is not decided, whatever the worker says.
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

// ---- Tickets ----

void Coordinator::TakeTicket(const proto::TakeTicketRequest& request,
                             Reply<proto::TakeTicketResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const auto refuse = [&](const absl::Status& status) {
    job_.outbox.Answer(std::move(reply), status);
  };
  const PushId push{ToWorkerLife(request.sender()),
                    PushSequence(request.sequence())};
  if (request.sender().generation() != job_.generation.value()) {
    return job_.outbox.Answer(std::move(reply), TicketRefusal(proto::ABORTED));
  }
  const auto session = job_.members.FindSession(request.sender());
  if (job_.members.IsFenced(session, request.sender())) {
    return job_.outbox.Answer(std::move(reply), TicketRefusal(proto::FENCED));
  }
  if (!session.ok()) return refuse(session.status());
  if (!restore_.beginning()) {
    if (absl::Status status = CheckMayTake(request, push); !status.ok()) {
      return refuse(status);
    }
    if (job_.state.phase() == proto::FAILED) {
      return job_.outbox.Answer(std::move(reply), TicketAnswer());
    }
    for (const proto::SpentTicket& spent : request.spent()) {
      const PushId told{push.from, PushSequence(spent.sequence())};
      if (!job_.tickets.Find(told).has_value()) continue;  // told again
      if (absl::Status status = job_.verdicts.CheckSpent(spent, told);
          !status.ok()) {
        Expel(push.from.worker, status);
        return refuse(status);
      }
    }
    for (const proto::SpentTicket& spent : request.spent()) {
      Book({push.from, PushSequence(spent.sequence())}, spent);
    }
    AckThrough(push.from, request.acked_through());
    const bool has_all = request.sequence() == 0 || job_.ended() ||
                         job_.tickets.Find(push).has_value();
    if (has_all) {
      // What is told as spent may have been the last.
      if (request.spent_size() > 0) Settle();
      return job_.outbox.Answer(std::move(reply), TicketAnswer(push));
    }
  }
  TicketBook::Parked& waiting = *job_.tickets.parked();
  auto [earlier, no_room] =
      waiting.ParkLatest(push, std::move(reply),
                         ParkedUntil(job_.clock->Now(), request.wait_ms()));
  for (auto& parked : earlier) {
    job_.outbox.Answer(std::move(parked.reply), TicketAnswer(push));
  }
  if (request.wait_ms() == 0 || no_room) {
    // It may get one all the same.
    Settle();
    AnswerTickets(waiting.Take(push));
  }
}

absl::Status Coordinator::CheckMayTake(const proto::TakeTicketRequest& request,
                                       const PushId& push) const {
  const TaskId& task = push.from.worker;
  if (!IsWorker(task)) {
    return absl::InvalidArgumentError(
        absl::StrCat(task.ToString(), " is no worker: it may take no ticket"));
  }
  if (job_.state.phase() == proto::FAILED) return absl::OkStatus();
  if (!job_.created) {
    return absl::FailedPreconditionError(
        absl::StrCat("there are no tickets yet: waiting for ", WaitingFor()));
  }
  if (!job_.tickets.open()) {
    return absl::FailedPreconditionError(
        "the job hands out no tickets: its examples are by step");
  }
  if (request.spent_size() > 0 && !job_.declared.asynchronous()) {
    return absl::InvalidArgumentError(
        "spent: a synchronous job's tickets are spent by Contribute");
  }
  return job_.tickets.CheckMayTake(request, push, job_.verdicts, job_.ended());
}

void Coordinator::Book(const PushId& push, const proto::SpentTicket& spent) {
  const std::optional<TicketPool::Out> ticket = job_.tickets.Book(push);
  if (!ticket.has_value()) return;  // told again
  job_.verdicts.Record(push, proto::ACCEPTED);
  AcceptedPush accepted;
  accepted.worker = push.from.worker;
  accepted.examples = spent.examples();
  if (!spent.loss_unknown()) accepted.loss = spent.loss();
  accepted.staleness = spent.staleness();
  accepted.not_finite = spent.not_finite();
  job_.progress.AddStep({accepted});
  job_.learning.OnPush(spent.examples(), spent.not_finite(),
                       ticket->loss_scale);
  job_.progress.SetCommitted(GlobalStep(job_.tickets.pool().spent()));
  const absl::Time now = job_.clock->Now();
  job_.progress.OnMoved(now);
  job_.progress.OnCommit(now);
  job_.paces.OnSpent(job_.members.ReplicaOf(push.from.worker), ticket->granted,
                     now);
  trace_.OnTicketSpent(ticket->index, push.from, ticket->granted, now);
  job_.OnProgress(now);
}

void Coordinator::GrantTickets() {
  if (!job_.training() || !job_.tickets.open() || job_.TooFewWorkers()) return;
  if (job_.tickets.parked()->empty()) return;
  const float loss_scale = job_.learning.loss_scale();
  const absl::Time now = job_.clock->Now();
  while (auto granted = job_.tickets.GrantNext(loss_scale, now)) {
    job_.outbox.Answer(std::move(granted->reply), TicketAnswer(granted->key));
  }
}

proto::TakeTicketResponse Coordinator::TicketAnswer() const {
  proto::TakeTicketResponse response;
  response.set_generation(job_.generation.value());
  *response.mutable_state() = job_.state;
  response.set_global_step(job_.step.open()
                               ? job_.step.number().value()
                               : job_.progress.committed().value());
  return response;
}

proto::TakeTicketResponse Coordinator::TicketRefusal(
    proto::Verdict verdict) const {
  proto::TakeTicketResponse response = TicketAnswer();
  response.set_verdict(verdict);
  return response;
}

proto::TakeTicketResponse Coordinator::TicketAnswer(const PushId& push) const {
  proto::TakeTicketResponse response = TicketAnswer();
  if (const auto through = save_.durable_through(push.from)) {
    response.set_durable_through(through->value());
  }
  if (push.sequence == PushSequence(0)) return response;  // none is wanted
  const std::optional<TicketPool::Out> out = job_.tickets.Find(push);
  if (!out.has_value()) return response;
  proto::Ticket& ticket = *response.mutable_ticket();
  ticket.set_index(out->index);
  if (job_.declared.asynchronous()) {
    ticket.set_loss_scale(out->loss_scale);
    for (const proto::Optimizer& optimizer : job_.declared->optimizers()) {
      *ticket.add_scalars() = ScalarsAt(optimizer, out->index, out->index + 1);
    }
    ticket.set_receipt(job_.verdicts.ReceiptOfTicket(push, ticket.scalars()));
  }
  return response;
}

void Coordinator::AnswerTickets(std::vector<TicketBook::Parked::Call> calls) {
  // The same for all of them, and as long as the list of workers.
  std::string waiting_for;
  for (auto& parked : calls) {
    proto::TakeTicketResponse response = TicketAnswer(parked.key);
    if (!response.has_ticket() && !job_.ended()) {
      if (waiting_for.empty()) waiting_for = WaitingFor();
      response.set_waiting_for(waiting_for);
    }
    job_.outbox.Answer(std::move(parked.reply), std::move(response));
  }
}

void Coordinator::RefuseTickets(std::vector<TicketBook::Parked::Call> calls,
                                proto::Verdict verdict) {
  for (auto& parked : calls) {
    job_.outbox.Answer(std::move(parked.reply), TicketRefusal(verdict));
  }
}

// ---- Checkpoints, and what workers report ----

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

void Coordinator::ReportEvaluation(
    const proto::ReportEvaluationRequest& request,
    Reply<proto::ReportEvaluationResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  const auto session = job_.members.FindSession(request.sender());
  if (!session.ok()) {
    return job_.outbox.Answer(std::move(reply), session.status());
  }
  OnEvaluation(request.result());
  proto::ReportEvaluationResponse response;
  response.set_generation(job_.generation.value());
  job_.outbox.Answer(std::move(reply), std::move(response));
}

void Coordinator::OnEvaluation(const proto::EvaluationResult& result) {
  job_.progress.OnEvaluation(result);
  if (!job_.history.AddEvaluation(result)) return;  // told again
  std::string text = absl::StrCat("evaluation of step ", result.step(),
                                  ": loss ", result.loss());
  if (result.has_accuracy()) {
    absl::StrAppend(&text, ", accuracy ", result.accuracy());
  }
  if (result.has_mean_absolute_error()) {
    absl::StrAppend(&text, ", mean absolute error ",
                    result.mean_absolute_error());
  }
  job_.Tell(proto::Event::EVALUATION, text);
}

// ---- The end ----

void Coordinator::Fail(const std::string& reason) {
  const Outbox::Event event(&job_.outbox);
  FailUnlessFinishing(reason);
}

void Coordinator::FailUnlessFinishing(const std::string& reason) {
  if (job_.ended()) return;
  // [C5] Whoever starts next believes the disk.
  if (job_.journal.finishing() &&
      job_.clock->Now() - job_.journal.begun() <= job_.timeouts.Disk()) {
    LOG_EVERY_N(WARNING, 100)
        << "the job is about to be done, and does not fail: " << reason;
    return;
  }
  FailNow(reason);
}

void Coordinator::FailNow(const std::string& reason) {
  if (job_.ended()) return;
  CloseHistory();
  job_.state.set_phase(proto::FAILED);
  job_.state.set_reason(Shorten(reason, kMaxReasonBytes));
  job_.Tell(proto::Event::FAILED, absl::StrCat("the job has failed: ", reason));
  auto contributions = job_.step.parked()->TakeAll();
  for (const auto& parked : contributions) {
    if (!job_.verdicts.Find(parked.key).has_value()) {
      Refuse(parked.key, proto::ABORTED);
    }
  }
  for (auto& parked : contributions) {
    job_.outbox.Answer(std::move(parked.reply),
                       ContributeAnswer(*job_.verdicts.Find(parked.key)));
  }
  restore_.Abort();
  save_.Abort();
  // What is queued would follow from what is over.
  job_.journal.Stop();
  job_.WriteHistory();
  job_.members.RetryRegisters(std::nullopt);
  AnswerTickets(job_.tickets.parked()->TakeAll());
  AnswerPlacements();
  job_.members.AnswerRenewals();
  save_.AnswerAll();
}

// The last steps make a point whether or not one is due.
void Coordinator::CloseHistory() {
  if (!job_.created) return;
  const absl::Time now = job_.clock->Now();
  if (job_.progress.committed().value() > job_.history.last_step()) {
    job_.AddPoint(now);
  }
  job_.rates.End(now, job_.Reached());
}

void Coordinator::OnFinished() {
  job_.state.set_phase(proto::DONE);
  if (job_.created) {
    CloseHistory();
    job_.Tell(proto::Event::DONE,
              absl::StrCat("the job is done: ", job_.global_step(), " steps"));
  } else {
    // So says the journal, which is all that is known.
    const uint64_t step = job_.journal.journal().checkpoints().rbegin()->step();
    job_.progress.SetCommitted(GlobalStep(step));
    save_.GoBack(step);
  }
  job_.journal.Stop();
  if (job_.created) job_.WriteHistory();
  end_.OnDone();
  AnswerTickets(job_.tickets.parked()->TakeAll());
  AnswerPlacements();
  job_.members.AnswerRenewals();
  save_.AnswerAll();
}

}  // namespace holdfast
