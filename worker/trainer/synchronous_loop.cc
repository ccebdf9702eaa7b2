// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/synchronous_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/phase_meter.h"
#include "common/base/status_macros.h"
#include "worker/model/parameter_arrival.h"

namespace holdfast {
namespace {

using Phase = PhaseMeter::Phase;

}  // namespace

// Waits for the values of *now_ during a computation.
class SynchronousLoop::Arrival final : public ParameterArrival {
 public:
  explicit Arrival(const SynchronousLoop* loop) : loop_(*loop) {}

  absl::Status Await(size_t variable) override {
    const auto arrived = [&] {
      Cluster::Pull& pull = *loop_.rest_;
      const absl::Time deadline = loop_.context_.StepDeadline();
      if (pull.HasVariable(variable)) {
        return pull.AwaitVariable(variable, deadline);
      }
      const TracedPhase waiting =
          loop_.context_.Waiting(Phase::kVersion, "version");
      return pull.AwaitVariable(variable, deadline);
    }();
    if (arrived.ok() && arrived->has_value()) return absl::OkStatus();
    superseded_ = arrived.ok();
    error_ = arrived.status();
    return superseded_ ? absl::CancelledError("a newer version has come")
                       : error_;
  }

  bool superseded() const { return superseded_; }
  // Why the pull has failed; OK if it has not.
  const absl::Status& error() const { return error_; }

 private:
  const SynchronousLoop& loop_;
  bool superseded_ = false;
  absl::Status error_;
};

SynchronousLoop::SynchronousLoop(TrainingContext* context,
                                 const Options& options)
    : context_(*context), options_(options) {
  for (Parameters& values : values_) {
    values.SetHostMemory(context->host_memory());
  }
}

absl::Status SynchronousLoop::Run() {
  rest_ = context_.cluster().StartPull(GlobalStep(0), now_);
  HOLDFAST_RETURN_IF_ERROR(AwaitRest());
  for (;;) {
    if (is_over() || context_.IsEvaluationDue(version_)) {
      HOLDFAST_RETURN_IF_ERROR(AwaitRest());
    }
    HOLDFAST_RETURN_IF_ERROR(context_.EvaluateWhenDue(version_));
    if (is_over()) return absl::OkStatus();
    ScopedTrace trace(context_.tracer(), TraceKind::kStep, "step");
    trace.Set("step", version_.value());
    context_.meter()->BeginStep("step", version_.value());
    HOLDFAST_RETURN_IF_ERROR(exchanges() ? Exchange() : TrainStep());
  }
}

absl::Status SynchronousLoop::Exchange() {
  context_.BeforeStep(version_);
  HOLDFAST_ASSIGN_OR_RETURN(const auto computed,
                            Compute(options_.seats.front()));
  if (!computed.has_value()) return absl::OkStatus();
  context_.WantRows(context_.batches().NextBags(), next_);
  HOLDFAST_RETURN_IF_ERROR(Contribute(*computed, next_));
  std::unique_ptr<Cluster::Pull> rest;
  const auto outcome = [&] {
    const TracedPhase waiting =
        context_.Waiting(Phase::kVerdict, "verdict and version");
    const absl::Time deadline = context_.StepDeadline();
    return begins_early() ? computed->push->AwaitVerdict(deadline, &rest)
                          : computed->push->Await(deadline);
  }();
  if (!outcome.ok()) return outcome.status();
  HOLDFAST_RETURN_IF_ERROR(
      context_.OnVerdict(outcome->verdict, computed->name));
  context_.meter()->FinishStep();
  return Proceed(std::move(rest));
}

absl::Status SynchronousLoop::Proceed(std::unique_ptr<Cluster::Pull> rest) {
  std::swap(now_, next_);
  next_->Release();
  rest_ = std::move(rest);
  if (rest_ == nullptr || rest_->done()) return AwaitRest();
  const TracedPhase waiting = context_.Waiting(Phase::kVersion, "version");
  HOLDFAST_ASSIGN_OR_RETURN(const auto first,
                            rest_->AwaitVariable(0, context_.StepDeadline()));
  if (!first.has_value()) return AwaitRest();
  version_ = first->version;
  loss_scale_ = first->loss_scale;
  return absl::OkStatus();
}

absl::Status SynchronousLoop::AwaitRest() {
  if (rest_ != nullptr) {
    const TracedPhase waiting = context_.Waiting(Phase::kVersion, "version");
    HOLDFAST_RETURN_IF_ERROR(rest_->Await(context_.StepDeadline()));
    rest_.reset();
  }
  version_ = now_->version;
  loss_scale_ = now_->loss_scale;
  return absl::OkStatus();
}

absl::Status SynchronousLoop::TrainStep() {
  std::vector<Computed> pushes;
  for (const uint32_t seat : options_.seats) {
    if (options_.by_ticket) {
      HOLDFAST_RETURN_IF_ERROR(HaveTicket());
      if (done_ || ticket_->global_step > version_) break;
    }
    if (pushes.empty()) context_.BeforeStep(version_);
    HOLDFAST_ASSIGN_OR_RETURN(auto computed, FillSeat(seat));
    if (!computed.has_value()) return absl::OkStatus();
    pushes.push_back(*std::move(computed));
  }
  GlobalStep next = version_.next();
  if (ticket_.has_value()) next = std::max(next, ticket_->global_step);
  std::unique_ptr<Cluster::Pull> pull;
  if (!done_) {
    context_.WantRows(context_.batches().NextBags(), next_);
    pull = context_.cluster().StartPull(next, next_);
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
  if (begins_early()) return Proceed(std::move(pull));
  {
    const TracedPhase waiting = context_.Waiting(Phase::kVersion, "version");
    HOLDFAST_RETURN_IF_ERROR(pull->Await(context_.StepDeadline()));
  }
  return Proceed(nullptr);
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
  if (options_.by_ticket) return context_.NextTicketBatch(ticket_->index);
  const std::optional<Dropped> dropped = std::exchange(dropped_, std::nullopt);
  if (dropped.has_value() && dropped->step == version_) return dropped->batch;
  return context_.NextBatch(version_, seat);
}

absl::StatusOr<std::optional<SynchronousLoop::Computed>>
SynchronousLoop::Compute(uint32_t seat) {
  HOLDFAST_ASSIGN_OR_RETURN(auto batch, NextBatch(seat));
  batch.loss_scale = loss_scale_;
  if (batch.size() > 0) {
    HOLDFAST_RETURN_IF_ERROR(context_.BringRows(*now_, version_, &batch));
  }
  Arrival arrival(this);
  if (rest_ != nullptr) batch.arrival = &arrival;
  const GlobalStep step = version_;
  Computed computed;
  computed.name =
      absl::StrCat("the push for step ", step.value(), ", seat ", seat);
  computed.push = options_.by_ticket
                      ? context_.cluster().StartPush(*ticket_, *now_)
                      : context_.cluster().StartPush(step);
  ticket_.reset();
  const auto gradient = [&] {
    TracedPhase computing = context_.Computing();
    computing.Set("examples", batch.size());
    return context_.gradients().Compute(*now_, batch, computed.push.get());
  }();
  HOLDFAST_RETURN_IF_ERROR(arrival.error());
  if (rest_ != nullptr && (gradient.ok() || arrival.superseded())) {
    HOLDFAST_RETURN_IF_ERROR(AwaitRest());
    if (arrival.superseded() || version_ != step) {
      batch.arrival = nullptr;
      batch.next_inputs = {};
      batch.next_positions = {};
      dropped_ = {step, batch};
      return std::nullopt;
    }
  }
  if (!gradient.ok()) return gradient.status();
  context_.OnGradient(step, computed.name, *gradient);
  computed.contribution.seat = seat;
  computed.contribution.examples = gradient->examples;
  computed.contribution.clip_factor = gradient->clip_factor;
  computed.contribution.loss = gradient->loss;
  computed.contribution.not_finite = !gradient->not_finite.empty();
  return std::optional<Computed>(std::move(computed));
}

absl::Status SynchronousLoop::Contribute(const Computed& computed,
                                         Parameters* next) {
  const PhaseMeter::Scope pushing(context_.meter(), Phase::kPush);
  return computed.push->Contribute(computed.contribution, next);
}

absl::StatusOr<std::optional<SynchronousLoop::Computed>>
SynchronousLoop::FillSeat(uint32_t seat) {
  HOLDFAST_ASSIGN_OR_RETURN(auto computed, Compute(seat));
  if (!computed.has_value()) return computed;
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
