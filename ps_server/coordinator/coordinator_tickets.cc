// The part of the coordinator that hands out tickets, books them, and shuts out
// the workers that are lost with some (docs/asynchronous.md).
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/coordinator/schedule.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

PushId FirstOf(const WorkerLife& life) { return {life, PushSequence(0)}; }

PushId LastOf(const WorkerLife& life) {
  return {life, PushSequence(std::numeric_limits<uint64_t>::max())};
}

}  // namespace

// ---- Handing out ----

proto::TakeTicketResponse Coordinator::TicketAnswer() const {
  proto::TakeTicketResponse response;
  response.set_generation(generation_.value());
  *response.mutable_state() = state_;
  response.set_global_step(step_.has_value() ? step_->number().value()
                                             : committed_.value());
  return response;
}

proto::TakeTicketResponse Coordinator::TicketAnswer(const PushId& push) const {
  proto::TakeTicketResponse response = TicketAnswer();
  const auto durable = durable_through_.find(push.from);
  if (durable != durable_through_.end()) {
    response.set_durable_through(durable->second.value());
  }
  if (push.sequence == PushSequence(0)) return response;  // none is wanted
  const std::optional<TicketPool::Out> ticket =
      tickets_.has_value() ? tickets_->Find(push) : std::nullopt;
  if (!ticket.has_value()) return response;
  response.mutable_ticket()->set_index(ticket->index);
  if (asynchronous()) {
    response.mutable_ticket()->set_loss_scale(ticket->loss_scale);
    for (const proto::Optimizer& optimizer : declaration_->optimizers()) {
      *response.mutable_ticket()->add_scalars() =
          ScalarsAt(optimizer, ticket->index, ticket->index + 1);
    }
    response.mutable_ticket()->set_receipt(
        receipts_->OfTicket(push, response.ticket().scalars()));
  }
  return response;
}

void Coordinator::TakeTicket(const proto::TakeTicketRequest& request,
                             Reply<proto::TakeTicketResponse> reply) {
  const TaskId task = ToTaskId(request.sender().task());
  const auto refuse = [&](proto::Verdict verdict) {
    proto::TakeTicketResponse response = TicketAnswer();
    response.set_verdict(verdict);
    reply(std::move(response));
  };
  if (request.sender().generation() != generation_.value()) {
    return refuse(proto::ABORTED);
  }
  const absl::StatusOr<Session*> session = FindSession(request.sender());
  if (IsFenced(session, request.sender())) return refuse(proto::FENCED);
  if (!session.ok()) return reply(session.status());
  const PushId push{ToWorkerLife(request.sender()),
                    PushSequence(request.sequence())};
  const absl::Time deadline = ParkedUntil(clock_->Now(), request.wait_ms());
  if (beginning_) {
    if (parked_tickets_.full()) return reply(TicketAnswer(push));
    return parked_tickets_.Park(push, std::move(reply), deadline);
  }
  if (absl::Status status = CheckMayTake(request, push); !status.ok()) {
    return reply(status);
  }
  if (state_.phase() == proto::FAILED) return reply(TicketAnswer());
  if (absl::Status spent = CheckSpent(request, push.from); !spent.ok()) {
    Expel(task, spent);
    return reply(spent);
  }
  for (const proto::SpentTicket& spent : request.spent()) {
    Book({push.from, PushSequence(spent.sequence())}, spent);
  }
  AckThrough(push.from, request.acked_through());
  // Replies may come back with further calls: all that this one brings is noted
  // before the first.
  const bool waits =
      request.sequence() != 0 && !ended() && !tickets_->Find(push).has_value();
  const bool at_once = request.wait_ms() == 0 || parked_tickets_.full();
  if (waits) {
    // Who asks again does not wait for the earlier answer any more.
    auto earlier = parked_tickets_.Take(push);
    parked_tickets_.Park(push, std::move(reply), deadline);
    for (auto& parked : earlier) parked.reply(TicketAnswer(push));
  }
  if (request.spent_size() > 0 && !ended()) {
    if (AllMade()) {
      Conclude();
    } else {
      Proceed();  // a checkpoint may be due
    }
  }
  // This one, and others that have waited for its worker.
  GrantTickets();
  if (!waits) return reply(TicketAnswer(push));
  if (at_once) Answer(parked_tickets_.Take(push));
}

absl::Status Coordinator::CheckMayTake(const proto::TakeTicketRequest& request,
                                       const PushId& push) const {
  const TaskId& task = push.from.worker;
  if (!IsWorker(task)) {
    return absl::InvalidArgumentError(
        absl::StrCat(task.ToString(), " is no worker: it may take no ticket"));
  }
  if (state_.phase() == proto::FAILED) return absl::OkStatus();
  if (!created_) {
    return absl::FailedPreconditionError(
        absl::StrCat("there are no tickets yet: waiting for ", WaitingFor()));
  }
  if (!tickets_.has_value()) {
    return absl::FailedPreconditionError(
        "the job hands out no tickets: its examples are by step");
  }
  if (request.spent_size() > 0 && !asynchronous()) {
    return absl::InvalidArgumentError(
        "spent: a synchronous job's tickets are spent by Contribute");
  }
  for (const proto::SpentTicket& spent : request.spent()) {
    const PushId told{push.from, PushSequence(spent.sequence())};
    if (!tickets_->Find(told).has_value() && !ledger_.Find(told).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          told.ToString(), " is told as spent, but has no ticket"));
    }
  }
  if (request.sequence() == 0 || tickets_->Find(push).has_value()) {
    return absl::OkStatus();
  }
  if (ledger_.Find(push).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(push.ToString(), " is over: it had its ticket"));
  }
  if (absl::Status status = ledger_.CheckInWindow(push); !status.ok()) {
    return status;
  }
  // Once the job is DONE everybody is told so.
  if (asynchronous() && !ended()) {
    PushSequence last = sessions_.at(push.from.worker).last_ticket;
    for (const auto* parked :
         parked_tickets_.Between(FirstOf(push.from), LastOf(push.from))) {
      last = std::max(last, parked->key.sequence);
    }
    if (push.sequence > last.next()) {
      return absl::FailedPreconditionError(
          absl::StrCat(push.ToString(), ": expected is push ",
                       last.next().value(), ": sequences rise by one"));
    }
  }
  // Those that this very request says to be spent are held no longer.
  std::set<PushSequence> held;
  for (const auto& [sequence, ticket] : tickets_->OutWith(push.from)) {
    held.insert(sequence);
  }
  for (const proto::SpentTicket& spent : request.spent()) {
    held.erase(PushSequence(spent.sequence()));
  }
  for (const auto* parked :
       parked_tickets_.Between(FirstOf(push.from), LastOf(push.from))) {
    held.insert(parked->key.sequence);
  }
  held.erase(push.sequence);
  const size_t most = MaxTickets(push.from.worker);
  if (held.size() >= most) {
    return absl::ResourceExhaustedError(
        absl::StrCat(push.ToString(), ": the worker holds or waits for ",
                     held.size(), " tickets, at most ", most));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::CheckSpent(const proto::TakeTicketRequest& request,
                                     const WorkerLife& from) const {
  for (const proto::SpentTicket& spent : request.spent()) {
    const PushId push{from, PushSequence(spent.sequence())};
    if (!tickets_->Find(push).has_value()) continue;  // told again
    if (absl::Status status = receipts_->CheckApplied(push, spent.receipts());
        !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(status.message(),
                                       "; it is told as spent, so its worker "
                                       "is shut out"));
    }
  }
  return absl::OkStatus();
}

// What is out is not decided, whatever the worker says.
void Coordinator::AckThrough(const WorkerLife& from, uint64_t sequence) {
  if (tickets_.has_value()) {
    const auto& out = tickets_->OutWith(from);
    if (!out.empty()) {
      sequence = std::min(sequence, out.begin()->first.value() - 1);
    }
  }
  ledger_.AckThrough(from, PushSequence(sequence));
}

size_t Coordinator::MaxTickets(const TaskId& worker) const {
  const proto::Consistency& consistency = declaration_->consistency();
  if (consistency.has_asynchronous()) {
    return size_t{consistency.asynchronous().pipeline_depth()} + 1;
  }
  const auto& mode = consistency.synchronous();
  return NumSeatsOf(ReplicaOf(worker), mode.replicas_to_aggregate(),
                    mode.total_num_replicas());
}

// [A1] The bound counts a worker's own pushes.
bool Coordinator::MayBegin(const PushId& push) const {
  if (!asynchronous()) return true;
  // One may be told as spent before those that it followed.
  const auto& out = tickets_->OutWith(push.from);
  if (!out.empty() && push.sequence.value() - out.begin()->first.value() >=
                          MaxTickets(push.from.worker)) {
    return false;
  }
  const auto& mode = declaration_->consistency().asynchronous();
  if (!mode.has_staleness_bound()) return true;
  const uint64_t begun = sessions_.at(push.from.worker).clock + out.size();
  return begun <= live_workers_.slowest() + mode.staleness_bound();
}

// A life's tickets, out or spent, only become more while it has a request
// parked; so what was out of bound stays so until the slowest worker's clock
// rises, or, where it was too far ahead of a ticket, until Book.
const Coordinator::ParkedTickets::Call* Coordinator::NextInBound() {
  if (live_workers_.slowest() > out_of_bound_at_) out_of_bound_through_ = 0;
  out_of_bound_at_ = live_workers_.slowest();
  const ParkedTickets::Call* next = parked_tickets_.Next(out_of_bound_through_);
  while (next != nullptr && !MayBegin(next->key)) {
    out_of_bound_through_ = next->number;
    next = parked_tickets_.Next(out_of_bound_through_);
  }
  return next;
}

// Replies may come back with further calls, so that it begins again after each.
void Coordinator::GrantTickets() {
  while (state_.phase() == proto::TRAINING && tickets_->left() > 0 &&
         !parked_tickets_.empty() && !(continues() && TooFewWorkers())) {
    const ParkedTickets::Call* const next = NextInBound();
    if (next == nullptr) return;
    const PushId push = next->key;
    tickets_->Take(push, loss_scaler_.has_value() ? loss_scaler_->scale() : 0);
    Session& session = sessions_.at(push.from.worker);
    session.last_ticket = std::max(session.last_ticket, push.sequence);
    Answer(parked_tickets_.Take(push));
  }
}

void Coordinator::Answer(std::vector<ParkedTickets::Call> requests) {
  // The same for all of them, and as long as the list of workers.
  std::string waiting_for;
  for (auto& parked : requests) {
    proto::TakeTicketResponse response = TicketAnswer(parked.key);
    if (!response.has_ticket() && !ended()) {
      if (waiting_for.empty()) waiting_for = WaitingFor();
      response.set_waiting_for(waiting_for);
    }
    parked.reply(std::move(response));
  }
}

std::string Coordinator::WaitingForTickets() const {
  std::set<TaskId> holders;
  for (const auto& [push, ticket] : tickets_->out()) {
    if (!step_.has_value() || !step_->SeatOf(push).has_value()) {
      holders.insert(push.from.worker);
    }
  }
  std::string what;
  if (holders.empty()) {
    what = "a ticket to be taken by ";
    for (uint32_t replica = 0; replica < options_.num_workers; ++replica) {
      holders.insert(WorkerOfReplica(replica));
    }
  }
  std::vector<std::string> names;
  for (const TaskId& worker : holders) names.push_back(Describe(worker));
  return absl::StrCat(what, JoinSome(names));
}

// ---- Booking [A4] ----

void Coordinator::Book(const PushId& push, const proto::SpentTicket& spent) {
  const std::optional<TicketPool::Out> ticket = tickets_->Spend(push);
  if (!ticket.has_value()) return;  // told again
  ledger_.Record(push, proto::ACCEPTED);
  Session& session = sessions_.at(push.from.worker);
  ++session.clock;
  if (session.alive) live_workers_.Set(push.from.worker, session.clock);
  progress_.AddStep({{push.from.worker, spent.examples(), spent.loss(),
                      spent.staleness(), spent.not_finite()}});
  divergence_->OnContribution(spent.examples(), spent.not_finite(),
                              ticket->loss_scale);
  if (loss_scaler_.has_value()) {
    loss_scaler_->OnStep(ticket->loss_scale, !spent.not_finite());
  }
  committed_ = GlobalStep(tickets_->spent());
  last_commit_ = step_opened_ = clock_->Now();
  // A request of the worker that this ticket alone has held up.
  for (const auto* parked :
       parked_tickets_.Between(FirstOf(push.from), LastOf(push.from))) {
    if (MayBegin(parked->key)) {
      out_of_bound_through_ =
          std::min(out_of_bound_through_, parked->number - 1);
    }
  }
}

// ---- Shutting out [A5, L4] ----

void Coordinator::ShutOut(const TaskId& worker, Session* session) {
  session->fenced = true;
  const WorkerLife life{worker, session->incarnation};
  fences_due_.push_back(life);
  LOG(WARNING) << Describe(worker) << " is shut out"
               << (continues() ? "; the job goes on" : "");
  if (step_.has_value()) step_->Vacate(life);
  members_.erase(worker);
  for (auto& parked :
       parked_contributions_.TakeBetween(FirstOf(life), LastOf(life))) {
    Refuse(parked.key, proto::FENCED);
    parked.reply(ContributeAnswer(proto::FENCED));
  }
  for (auto& parked :
       parked_tickets_.TakeBetween(FirstOf(life), LastOf(life))) {
    proto::TakeTicketResponse response = TicketAnswer();
    response.set_verdict(proto::FENCED);
    parked.reply(std::move(response));
  }
  Proceed();
  // It may have been the slowest.
  if (tickets_.has_value()) GrantTickets();
}

void Coordinator::Expel(const TaskId& worker, const absl::Status& why) {
  LOG(ERROR) << Describe(worker) << " is not to be believed: " << why.message();
  Session& session = sessions_.at(worker);
  SetAlive(worker, &session, false);
  session.lost_at = clock_->Now();
  ShutOut(worker, &session);
  RetryRegisters(worker);
}

void Coordinator::StartFence() {
  fence_.Clear();
  applied_.clear();
  *fence_.mutable_sender() = Self();
  for (const WorkerLife& life : fences_due_) {
    proto::WorkerLife& message = *fence_.add_lives();
    message.mutable_worker()->set_job(life.worker.job);
    message.mutable_worker()->set_index(life.worker.index);
    message.set_incarnation(life.incarnation.value());
  }
  fences_due_.clear();
  StartBroadcast(Broadcast::kFence);
}

template <typename Response>
void Coordinator::OnApplied(const Response& response) {
  for (const proto::AppliedPush& applied : response.applied()) {
    const PushId push{ToWorkerLife(applied.from()),
                      PushSequence(applied.sequence())};
    proto::AppliedPush& kept = applied_.emplace(push, applied).first->second;
    kept.set_staleness(std::max(kept.staleness(), applied.staleness()));
  }
}
template void Coordinator::OnApplied(const proto::FenceResponse& response);
template void Coordinator::OnApplied(const proto::HoldResponse& response);

void Coordinator::AddApplied(
    const proto::AppliedPush& applied, uint64_t index,
    google::protobuf::RepeatedPtrField<proto::AppliedPush>* to) const {
  proto::AppliedPush& told = *to->Add();
  told = applied;
  told.clear_scalars();
  for (const proto::Optimizer& optimizer : declaration_->optimizers()) {
    *told.add_scalars() = ScalarsAt(optimizer, index, index + 1);
  }
}

void Coordinator::StartResolve() {
  resolve_.Clear();
  *resolve_.mutable_sender() = Self();
  *resolve_.mutable_lives() = fence_.lives();
  for (const auto& [push, applied] : applied_) {
    const std::optional<TicketPool::Out> ticket = tickets_->Find(push);
    // Booked already: every shard has applied it.
    if (!ticket.has_value()) continue;
    AddApplied(applied, ticket->index, resolve_.mutable_applied());
  }
  StartBroadcast(Broadcast::kResolve);
}

void Coordinator::AddUntold(const PushId& push, const TicketPool::Out& ticket,
                            Progress* progress,
                            std::optional<LossScaler>* loss_scaler,
                            DivergenceWatch* divergence) const {
  const proto::AppliedPush& applied = applied_.at(push);
  progress->AddStep(
      {{push.from.worker, applied.examples(),
        /*loss=*/std::nullopt, applied.staleness(), applied.not_finite()}});
  divergence->OnContribution(applied.examples(), applied.not_finite(),
                             ticket.loss_scale);
  if (loss_scaler->has_value()) {
    (*loss_scaler)->OnStep(ticket.loss_scale, !applied.not_finite());
  }
}

void Coordinator::OnResolved() {
  for (const proto::WorkerLife& message : resolve_.lives()) {
    const WorkerLife life = ToWorkerLife(message);
    // A copy, as they are taken out.
    for (const auto& [sequence, ticket] :
         tickets_.has_value() ? std::map(tickets_->OutWith(life))
                              : std::map<PushSequence, TicketPool::Out>()) {
      const PushId push{life, sequence};
      if (applied_.count(push) == 0) {
        tickets_->Return(push);
        progress_.AddRefused(proto::FENCED);
        continue;
      }
      tickets_->Spend(push);
      AddUntold(push, ticket, &progress_, &loss_scaler_, &*divergence_);
      last_commit_ = step_opened_ = clock_->Now();
    }
    ledger_.Forget(life);
  }
  if (asynchronous()) committed_ = GlobalStep(tickets_->spent());
  if (ended()) return;
  if (AllMade()) return Conclude();
  Proceed();
  if (tickets_.has_value()) GrantTickets();
}

}  // namespace holdfast
