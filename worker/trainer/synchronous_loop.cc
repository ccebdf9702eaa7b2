// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/synchronous_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/phase_meter.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

using Phase = PhaseMeter::Phase;

}  // namespace

SynchronousLoop::SynchronousLoop(TrainingContext* context,
                                 const Options& options)
    : context_(*context), options_(options) {
  now_.SetHostMemory(context->host_memory());
  next_.SetHostMemory(context->host_memory());
}

absl::Status SynchronousLoop::Run() {
  absl::Status status = [&] {
    const TracedPhase waiting = context_.Waiting(Phase::kVersion, "version");
    return context_.cluster()
        .StartPull(GlobalStep(0), &now_)
        ->Await(context_.StepDeadline());
  }();
  if (!status.ok()) return status;
  for (;;) {
    status = context_.EvaluateWhenDue(now_.version);
    if (!status.ok()) return status;
    if (done_ || now_.version >= context_.total_steps())
      return absl::OkStatus();
    ScopedTrace trace(context_.tracer(), TraceKind::kStep, "step");
    trace.Set("step", now_.version.value());
    context_.meter()->BeginStep("step", now_.version.value());
    status = exchanges() ? Exchange() : TrainStep();
    if (!status.ok()) return status;
  }
}

absl::Status SynchronousLoop::Exchange() {
  context_.BeforeStep(now_.version);
  HOLDFAST_ASSIGN_OR_RETURN(const auto computed,
                            Compute(options_.seats.front()));
  context_.WantRows(context_.batches().NextBags(), &next_);
  absl::Status status = Contribute(computed, &next_);
  if (!status.ok()) return status;
  const TracedPhase waiting =
      context_.Waiting(Phase::kVerdict, "verdict and version");
  HOLDFAST_ASSIGN_OR_RETURN(const auto outcome,
                            computed.push->Await(context_.StepDeadline()));
  status = context_.OnVerdict(outcome.verdict, computed.name);
  if (!status.ok()) return status;
  context_.meter()->FinishStep();
  Proceed();
  return absl::OkStatus();
}

void SynchronousLoop::Proceed() {
  std::swap(now_, next_);
  next_.Release();
}

absl::Status SynchronousLoop::TrainStep() {
  std::vector<Computed> pushes;
  for (const uint32_t seat : options_.seats) {
    if (options_.by_ticket) {
      HOLDFAST_RETURN_IF_ERROR(HaveTicket());
      if (done_ || ticket_->global_step > now_.version) break;
    }
    if (pushes.empty()) context_.BeforeStep(now_.version);
    HOLDFAST_ASSIGN_OR_RETURN(auto computed, FillSeat(seat));
    pushes.push_back(std::move(computed));
  }
  GlobalStep next = now_.version.next();
  if (ticket_.has_value()) next = std::max(next, ticket_->global_step);
  std::unique_ptr<Cluster::Pull> pull;
  if (!done_) {
    context_.WantRows(context_.batches().NextBags(), &next_);
    pull = context_.cluster().StartPull(next, &next_);
  }
  for (const Computed& computed : pushes) {
    const TracedPhase waiting = context_.Waiting(Phase::kVerdict, "verdict");
    HOLDFAST_ASSIGN_OR_RETURN(const auto outcome,
                              computed.push->Await(context_.StepDeadline()));
    HOLDFAST_RETURN_IF_ERROR(
        context_.OnVerdict(outcome.verdict, computed.name));
  }
  if (!pushes.empty()) context_.meter()->FinishStep();
  // Taken here so that its batch is read while the pull is under way.
  if (options_.by_ticket) {
    HOLDFAST_RETURN_IF_ERROR(HaveTicket());
  }
  if (done_) return absl::OkStatus();
  const TracedPhase waiting = context_.Waiting(Phase::kVersion, "version");
  HOLDFAST_RETURN_IF_ERROR(pull->Await(context_.StepDeadline()));
  Proceed();
  return absl::OkStatus();
}

absl::Status SynchronousLoop::HaveTicket() {
  if (done_ || ticket_.has_value()) return absl::OkStatus();
  // The wait ends when the tickets given out are spent or returned: at least
  // one with each step that closes.
  const absl::Time deadline =
      context_.StepDeadline(uint64_t{options_.seats_per_step} + 1);
  const TracedPhase waiting = context_.Waiting(Phase::kTicket, "ticket");
  HOLDFAST_ASSIGN_OR_RETURN(
      auto ticket, context_.cluster().StartTakeTicket()->Await(deadline));
  ticket_ = std::move(ticket);
  done_ = !ticket_.has_value();
  if (done_) return absl::OkStatus();
  return context_.batches().Prepare(ticket_->index);
}

absl::StatusOr<Batch> SynchronousLoop::NextBatch(uint32_t seat) {
  return options_.by_ticket ? context_.NextTicketBatch(ticket_->index)
                            : context_.NextBatch(now_.version, seat);
}

absl::StatusOr<SynchronousLoop::Computed> SynchronousLoop::Compute(
    uint32_t seat) {
  HOLDFAST_ASSIGN_OR_RETURN(auto batch, NextBatch(seat));
  batch.loss_scale = now_.loss_scale;
  if (batch.size() > 0) {
    HOLDFAST_RETURN_IF_ERROR(context_.BringRows(now_, now_.version, &batch));
  }
  Computed computed;
  computed.name =
      absl::StrCat("the push for step ", now_.version.value(), ", seat ", seat);
  computed.push = options_.by_ticket
                      ? context_.cluster().StartPush(*ticket_, now_)
                      : context_.cluster().StartPush(now_.version);
  ticket_.reset();
  const auto gradient = [&] {
    TracedPhase computing = context_.Computing();
    computing.Set("examples", batch.size());
    return context_.gradients().Compute(now_, batch, computed.push.get());
  }();
  if (!gradient.ok()) return gradient.status();
  context_.OnGradient(now_.version, computed.name, *gradient);
  computed.contribution.seat = seat;
  computed.contribution.examples = gradient->examples;
  computed.contribution.clip_factor = gradient->clip_factor;
  computed.contribution.loss = gradient->loss;
  computed.contribution.not_finite = !gradient->not_finite.empty();
  return computed;
}

absl::Status SynchronousLoop::Contribute(const Computed& computed,
                                         Parameters* next) {
  const PhaseMeter::Scope pushing(context_.meter(), Phase::kPush);
  return computed.push->Contribute(computed.contribution, next);
}

absl::StatusOr<SynchronousLoop::Computed> SynchronousLoop::FillSeat(
    uint32_t seat) {
  absl::StatusOr<Computed> computed = Compute(seat);
  if (!computed.ok()) return computed;
  // If the weight is 0, parts that were already sent do not count.
  if (computed->contribution.examples > 0) {
    const TracedPhase waiting =
        context_.Waiting(Phase::kPush, "acknowledgment");
    HOLDFAST_RETURN_IF_ERROR(
        computed->push->AwaitHeld(context_.StepDeadline()));
  }
  HOLDFAST_RETURN_IF_ERROR(Contribute(*computed, nullptr));
  return computed;
}

}  // namespace holdfast
