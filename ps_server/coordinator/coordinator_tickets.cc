// SPDX-License-Identifier: Apache-2.0

// How workers take tickets and report them as spent:
// docs/protocol/asynchronous.md, A1 and A4.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/request.h"

namespace holdfast {

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
    if (job_.ended_early()) {
      return job_.outbox.Answer(std::move(reply), TicketAnswer());
    }
    for (const proto::SpentTicket& spent : request.spent()) {
      const PushId told{push.from, PushSequence(spent.sequence())};
      if (!job_.tickets.Find(told).has_value()) continue;  // reported again
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
      // The ticket reported as spent may have been the last.
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
    // The push may still get a ticket.
    Settle();
    AnswerTickets(waiting.Take(push));
  }
}

absl::Status Coordinator::CheckMayTake(const proto::TakeTicketRequest& request,
                                       const PushId& push) const {
  const TaskId& task = push.from.worker;
  if (!IsWorker(task)) {
    return absl::InvalidArgumentError(absl::StrCat(
        task.ToString(), " is not a worker: it may not take tickets"));
  }
  if (job_.ended_early()) return absl::OkStatus();
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
  if (!ticket.has_value()) return;  // reported again
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
  job_.chronicle.OnProgress();
}

void Coordinator::GrantTickets() {
  if (!job_.training() || !job_.tickets.open() || job_.TooFewWorkers()) return;
  if (job_.tickets.parked()->empty()) return;
  // The job ends early.
  if (!job_.declared.asynchronous() && job_.AllStepsFixed() &&
      job_.early_end.has_value()) {
    return;
  }
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
    job_.learning.AddScalarsOfTicket(*job_.declared, out->index,
                                     job_.rates.FactorAt(out->index),
                                     ticket.mutable_scalars());
    ticket.set_receipt(job_.verdicts.ReceiptOfTicket(push, ticket.scalars()));
  }
  return response;
}

void Coordinator::AnswerTickets(std::vector<TicketBook::Parked::Call> calls) {
  // Made once, because it is the same for all, and as long as the list of
  // workers.
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

}  // namespace holdfast
