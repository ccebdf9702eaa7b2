// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/ticket_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "ps_server/coordinator/step.h"

namespace holdfast {
void TicketBook::Reset() {
  pool_.reset();
  out_of_bound_through_ = 0;
  out_of_bound_at_ = 0;
  for (auto& [task, worker] : workers_) {
    worker.clock = 0;
    worker.last_ticket = PushSequence(0);
    if (worker.live) live_.Set(task, 0);
  }
}

void TicketBook::Begin(const proto::Position& position) {
  pool_.emplace((*declared_)->total_tickets(), position.next_ticket(),
                std::set<uint64_t>(position.returned_tickets().begin(),
                                   position.returned_tickets().end()));
}

void TicketBook::OnJoined(const WorkerLife& life, uint32_t replica) {
  Worker& worker = workers_[life.worker];
  worker = Worker();
  worker.incarnation = life.incarnation;
  worker.replica = replica;
  worker.clock = live_.slowest();
  live_.Set(life.worker, worker.clock);
}

void TicketBook::SetLive(const TaskId& task, bool live) {
  Worker& worker = workers_.at(task);
  worker.live = live;
  if (live) {
    live_.Set(task, worker.clock);
  } else {
    live_.Remove(task);
  }
}

absl::Status TicketBook::CheckMayTake(const proto::TakeTicketRequest& request,
                                      const PushId& push,
                                      const Verdicts& verdicts,
                                      bool ended) const {
  for (const proto::SpentTicket& spent : request.spent()) {
    const PushId told{push.from, PushSequence(spent.sequence())};
    if (!pool_->Find(told).has_value() && !verdicts.Find(told).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          told.ToString(), " is reported as spent, but has no ticket"));
    }
  }
  if (request.sequence() == 0 || pool_->Find(push).has_value()) {
    return absl::OkStatus();
  }
  if (verdicts.Find(push).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(push.ToString(), " is over: it had its ticket"));
  }
  HOLDFAST_RETURN_IF_ERROR(verdicts.CheckInWindow(push));
  const Worker& worker = workers_.at(push.from.worker);
  const std::vector<const Parked::Call*> waiting =
      parked_.Between(FirstOf(push.from), LastOf(push.from));
  if (declared_->asynchronous() && !ended) {
    PushSequence last = worker.last_ticket;
    for (const auto* parked : waiting) {
      last = std::max(last, parked->key.sequence);
    }
    if (push.sequence > last.next()) {
      return absl::FailedPreconditionError(
          absl::StrCat(push.ToString(), ": expected push ", last.next().value(),
                       ": sequences rise by one"));
    }
  }
  // Tickets that this request reports as spent are no longer held.
  std::set<PushSequence> held;
  for (const auto& [sequence, ticket] : pool_->OutWith(push.from)) {
    held.insert(sequence);
  }
  for (const proto::SpentTicket& spent : request.spent()) {
    held.erase(PushSequence(spent.sequence()));
  }
  for (const auto* parked : waiting) held.insert(parked->key.sequence);
  held.erase(push.sequence);
  const size_t most = MaxTickets(worker);
  if (held.size() >= most) {
    return absl::ResourceExhaustedError(
        absl::StrCat(push.ToString(), ": the worker holds or waits for ",
                     held.size(), " tickets, but may have at most ", most));
  }
  return absl::OkStatus();
}

size_t TicketBook::MaxTickets(const Worker& worker) const {
  const proto::Consistency& consistency = (*declared_)->consistency();
  if (consistency.has_asynchronous()) {
    return size_t{consistency.asynchronous().pipeline_depth()} + 1;
  }
  const auto& mode = consistency.synchronous();
  return NumSeatsOf(worker.replica, mode.replicas_to_aggregate(),
                    mode.total_num_replicas());
}

// [A1] The bound counts a worker's own pushes.
bool TicketBook::MayBegin(const PushId& push) const {
  if (!declared_->asynchronous()) return true;
  const Worker& worker = workers_.at(push.from.worker);
  // A push may be reported as spent before earlier ones.
  const auto& out = pool_->OutWith(push.from);
  if (!out.empty() && push.sequence.value() - out.begin()->first.value() >=
                          MaxTickets(worker)) {
    return false;
  }
  const auto& mode = (*declared_)->consistency().asynchronous();
  if (!mode.has_staleness_bound()) return true;
  const uint64_t begun = worker.clock + out.size();
  return begun <= live_.slowest() + mode.staleness_bound();
}

// The number of a life's tickets, out or spent, only grows while the life has a
// parked request. So a request that may not begin stays so until the slowest
// worker's clock rises or, if its push was too many sequences after a ticket
// that is out, until that ticket is booked.
const TicketBook::Parked::Call* TicketBook::NextInBound() {
  if (live_.slowest() > out_of_bound_at_) out_of_bound_through_ = 0;
  out_of_bound_at_ = live_.slowest();
  const Parked::Call* next = parked_.Next(out_of_bound_through_);
  while (next != nullptr && !MayBegin(next->key)) {
    out_of_bound_through_ = next->number;
    next = parked_.Next(out_of_bound_through_);
  }
  return next;
}

std::optional<TicketBook::Parked::Call> TicketBook::GrantNext(float loss_scale,
                                                              absl::Time now) {
  if (pool_->left() == 0 || parked_.empty()) return std::nullopt;
  const Parked::Call* const next = NextInBound();
  if (next == nullptr) return std::nullopt;
  const PushId& push = next->key;
  pool_->Take(push, loss_scale, now);
  PushSequence& last = workers_.at(push.from.worker).last_ticket;
  last = std::max(last, push.sequence);
  return parked_.TakeCall(next);
}

std::map<PushSequence, TicketPool::Out> TicketBook::OutWith(
    const WorkerLife& life) const {
  if (!open()) return {};
  return pool_->OutWith(life);
}

std::optional<TicketPool::Out> TicketBook::Book(const PushId& push) {
  const std::optional<TicketPool::Out> ticket = pool_->Spend(push);
  if (!ticket.has_value()) return ticket;
  Worker& worker = workers_.at(push.from.worker);
  ++worker.clock;
  if (worker.live) live_.Set(push.from.worker, worker.clock);
  // This ticket alone may have held up a request of the same worker.
  for (const auto* parked :
       parked_.Between(FirstOf(push.from), LastOf(push.from))) {
    if (MayBegin(parked->key)) {
      out_of_bound_through_ =
          std::min(out_of_bound_through_, parked->number - 1);
    }
  }
  return ticket;
}

PushSequence TicketBook::LimitAck(const WorkerLife& from,
                                  uint64_t sequence) const {
  if (open()) {
    const auto& out = pool_->OutWith(from);
    if (!out.empty()) {
      sequence = std::min(sequence, out.begin()->first.value() - 1);
    }
  }
  return PushSequence(sequence);
}

std::map<WorkerLife, PushSequence> TicketBook::Through(
    const std::set<PushId>& applied) const {
  std::map<WorkerLife, PushSequence> through;
  for (const auto& [task, worker] : workers_) {
    const WorkerLife life{task, worker.incarnation};
    PushSequence last = worker.last_ticket;
    for (const auto& [sequence, ticket] : OutWith(life)) {
      if (applied.count({life, sequence}) > 0) continue;
      last = PushSequence(sequence.value() - 1);
      break;
    }
    through[life] = last;
  }
  return through;
}

}  // namespace holdfast
