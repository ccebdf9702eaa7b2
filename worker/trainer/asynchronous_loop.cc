// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/asynchronous_loop.h"

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/phase_meter.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

using Phase = PhaseMeter::Phase;

}  // namespace

AsynchronousLoop::AsynchronousLoop(TrainingContext* context,
                                   const Options& options)
    : context_(*context), options_(options), slots_(options.pipeline_depth) {
  now_.SetHostMemory(context->host_memory());
  if (context->has_tables() && options.pipeline_depth > 1) {
    ahead_.emplace(context, options.longest_wait);
  }
}

absl::Status AsynchronousLoop::Run() {
  AskForTicket();
  Tracer* const tracer = context_.tracer();
  size_t turn = 0;
  for (;; turn = (turn + 1) % slots_.size()) {
    // The push is finished before the ticket is awaited, because a worker may
    // hold only one ticket more than pipeline_depth, and because the error of a
    // failed push says more than that of a ticket which does not arrive.
    absl::Status status = Finish(&slots_[turn]);
    if (!status.ok()) return status;
    const OneTicket ticket = AwaitTicket();
    if (!ticket.ok()) return ticket.status();
    if (!ticket->has_value()) break;
    if (!ahead_.has_value()) AskForTicket();
    ScopedTrace trace(tracer, TraceKind::kStep, "ticket");
    trace.Set("ticket", (*ticket)->index);
    context_.meter()->BeginStep("ticket", (*ticket)->index);
    status = TrainTicket(**ticket, &slots_[turn]);
    if (!status.ok()) return status;
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    HOLDFAST_RETURN_IF_ERROR(Finish(&slots_[(turn + i) % slots_.size()]));
  }
  return absl::OkStatus();
}

void AsynchronousLoop::AskForTicket() {
  if (ahead_.has_value()) {
    ahead_->Start();
  } else {
    request_ = context_.cluster().StartTakeTicket();
  }
}

AsynchronousLoop::OneTicket AsynchronousLoop::AwaitTicket() {
  if (ahead_.has_value()) return ahead_->AwaitTicket();
  if (next_ticket_.has_value()) {
    OneTicket ticket = *std::move(next_ticket_);
    next_ticket_.reset();
    return ticket;
  }
  const TracedPhase waiting = context_.Waiting(Phase::kTicket, "ticket");
  return request_->Await(context_.StepDeadline(options_.longest_wait));
}

absl::Status AsynchronousLoop::LookAhead() {
  if (!context_.has_tables() || ahead_.has_value() ||
      next_ticket_.has_value()) {
    return absl::OkStatus();
  }
  if (!request_->WaitUntilDone(absl::InfinitePast())) return absl::OkStatus();
  next_ticket_ = request_->Await(context_.StepDeadline());
  // AwaitTicket returns the error.
  if (!next_ticket_->ok() || !(*next_ticket_)->has_value()) {
    return absl::OkStatus();
  }
  return context_.batches().Prepare((**next_ticket_)->index);
}

const TableBags* AsynchronousLoop::NextBags() {
  if (!next_ticket_.has_value() || !next_ticket_->ok() ||
      !(*next_ticket_)->has_value()) {
    return nullptr;
  }
  return context_.batches().BagsOfTicket((**next_ticket_)->index);
}

absl::Status AsynchronousLoop::Pull(const TableBags* bags) {
  if (ahead_.has_value()) {
    const absl::Status status = ahead_->Take(&now_);
    // The next ticket is requested only after Take, because PullAhead then
    // overwrites the values that Take moves.
    AskForTicket();
    return status;
  }
  const TracedPhase waiting = context_.Waiting(Phase::kVersion, "version");
  context_.WantRows(bags, &now_);
  return context_.cluster()
      .StartPull(GlobalStep(0), &now_)
      ->Await(context_.StepDeadline());
}

absl::Status AsynchronousLoop::TrainTicket(const Ticket& ticket, Slot* slot) {
  absl::Status status = context_.batches().Prepare(ticket.index);
  if (!status.ok()) return status;
  status = context_.EvaluateWhenDue(ticket.global_step);
  if (!status.ok()) return status;
  // The rows to pull are known from the batch; PullAhead has looked at the
  // batch before it is taken here.
  const bool pulls_with_batch = context_.has_tables() && !ahead_.has_value();
  if (!pulled_ && !pulls_with_batch) {
    status = Pull(nullptr);
    if (!status.ok()) return status;
  }
  context_.BeforeStep(GlobalStep(ticket.index));
  HOLDFAST_ASSIGN_OR_RETURN(auto batch, context_.NextTicketBatch(ticket.index));
  batch.loss_scale = ticket.loss_scale;
  if (context_.has_tables()) {
    if (!pulled_ && pulls_with_batch) status = Pull(batch.bags);
    if (status.ok() && batch.size() > 0) {
      status = context_.BringRows(now_, GlobalStep(0), &batch);
    }
    status.Update(LookAhead());
    if (!status.ok()) return status;
  }

  slot->name = absl::StrCat("the push for ticket ", ticket.index);
  slot->push = context_.cluster().StartPush(ticket, now_);
  const auto gradient = [&] {
    TracedPhase computing = context_.Computing();
    computing.Set("examples", batch.size());
    return context_.gradients().Compute(
        now_, batch, slot->push.get(),
        slots_.size() > 1 ? &slot->gradient : nullptr);
  }();
  if (!gradient.ok()) return gradient.status();
  context_.OnGradient(now_.version, slot->name, *gradient);
  Contribution contribution;
  contribution.examples = gradient->examples;
  contribution.clip_factor = gradient->clip_factor;
  contribution.loss = gradient->loss;
  contribution.not_finite = !gradient->not_finite.empty();
  if (exchanges()) {
    status = LookAhead();
    if (!status.ok()) return status;
    context_.WantRows(NextBags(), &now_);
  }
  const PhaseMeter::Scope pushing(context_.meter(), Phase::kPush);
  return slot->push->Contribute(contribution, exchanges() ? &now_ : nullptr);
}

absl::Status AsynchronousLoop::Finish(Slot* slot) {
  if (slot->push == nullptr) return absl::OkStatus();
  const TracedPhase waiting = context_.Waiting(Phase::kVerdict, "verdict");
  const auto outcome = slot->push->Await(context_.StepDeadline());
  slot->push.reset();
  if (!outcome.ok()) return outcome.status();
  pulled_ = exchanges() && outcome->verdict == proto::ACCEPTED;
  context_.meter()->FinishStep();
  return context_.OnVerdict(outcome->verdict, slot->name);
}

}  // namespace holdfast
