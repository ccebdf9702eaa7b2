#include "worker/trainer/asynchronous_loop.h"

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/phase_meter.h"

namespace holdfast {
namespace {

using Phase = PhaseMeter::Phase;

}  // namespace

AsynchronousLoop::AsynchronousLoop(TrainingContext* context,
                                   const Options& options)
    : context_(*context), options_(options), slots_(options.pipeline_depth) {
  now_.SetHostMemory(context->host_memory());
}

absl::Status AsynchronousLoop::Run() {
  std::unique_ptr<Cluster::TicketRequest> request =
      context_.cluster().StartTakeTicket();
  Tracer* const tracer = context_.tracer();
  size_t turn = 0;
  for (;; turn = (turn + 1) % slots_.size()) {
    // Before the ticket: the worker may hold one more than pipeline_depth, and
    // a push that has failed says more than a ticket that does not come.
    absl::Status status = Finish(&slots_[turn]);
    if (!status.ok()) return status;
    const absl::StatusOr<std::optional<Ticket>> ticket = [&] {
      const TracedPhase waiting = context_.Waiting(Phase::kTicket, "ticket");
      return request->Await(context_.StepDeadline(options_.longest_wait));
    }();
    if (!ticket.ok()) return ticket.status();
    if (!ticket->has_value()) break;
    request = context_.cluster().StartTakeTicket();
    ScopedTrace trace(tracer, TraceKind::kStep, "ticket");
    trace.Set("ticket", (*ticket)->index);
    context_.meter()->BeginStep("ticket", (*ticket)->index);
    status = TrainTicket(**ticket, &slots_[turn]);
    if (!status.ok()) return status;
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    absl::Status status = Finish(&slots_[(turn + i) % slots_.size()]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status AsynchronousLoop::TrainTicket(const Ticket& ticket, Slot* slot) {
  absl::Status status = context_.batches().Prepare(ticket.index);
  if (!status.ok()) return status;
  status = context_.EvaluateWhenDue(ticket.global_step);
  if (!status.ok()) return status;
  if (!pulled_) {
    const TracedPhase waiting = context_.Waiting(Phase::kVersion, "version");
    status = context_.cluster()
                 .StartPull(GlobalStep(0), &now_)
                 ->Await(context_.StepDeadline());
    if (!status.ok()) return status;
  }
  context_.BeforeStep(GlobalStep(ticket.index));
  absl::StatusOr<Batch> batch = context_.NextTicketBatch(ticket.index);
  if (!batch.ok()) return batch.status();
  batch->loss_scale = ticket.loss_scale;

  slot->name = absl::StrCat("the push for ticket ", ticket.index);
  slot->push = context_.cluster().StartPush(ticket, now_);
  const auto gradient = [&] {
    TracedPhase computing = context_.Computing();
    computing.Set("examples", batch->size());
    return context_.gradients().Compute(
        now_, *batch, slot->push.get(),
        slots_.size() > 1 ? &slot->gradient : nullptr);
  }();
  if (!gradient.ok()) return gradient.status();
  context_.OnGradient(now_.version, slot->name, *gradient);
  Contribution contribution;
  contribution.examples = gradient->examples;
  contribution.clip_factor = gradient->clip_factor;
  contribution.loss = gradient->loss;
  contribution.not_finite = !gradient->not_finite.empty();
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
