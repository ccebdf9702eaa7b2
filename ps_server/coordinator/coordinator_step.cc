// The part of the coordinator that makes steps of contributions
// (docs/life_of_a_step.md, steps 3, 4 and 6).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/coordinator/schedule.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

float ClipFactorOf(const proto::ContributeRequest& request) {
  return request.has_clip_factor() ? request.clip_factor() : 1.0f;
}

}  // namespace

proto::ContributeResponse Coordinator::ContributeAnswer(
    proto::Verdict verdict) const {
  proto::ContributeResponse response;
  response.set_generation(generation_.value());
  *response.mutable_state() = state_;
  response.set_verdict(verdict);
  if (step_.has_value()) response.set_global_step(step_->number().value());
  response.set_durable_step(durable_step_);
  return response;
}

proto::ContributeResponse Coordinator::NotYetAnswer(
    const std::string& waiting_for) const {
  proto::ContributeResponse response =
      ContributeAnswer(proto::VERDICT_UNSPECIFIED);
  response.set_waiting_for(waiting_for);
  return response;
}

void Coordinator::Contribute(const proto::ContributeRequest& request,
                             Reply<proto::ContributeResponse> reply) {
  const TaskId task = ToTaskId(request.sender().task());
  if (request.sender().generation() != generation_.value()) {
    return reply(ContributeAnswer(proto::ABORTED));
  }
  const absl::StatusOr<Session*> session = FindSession(request.sender());
  if (IsFenced(session, request.sender())) {
    return reply(ContributeAnswer(proto::FENCED));
  }
  if (!session.ok()) return reply(session.status());
  if (!IsWorker(task)) {
    return reply(absl::InvalidArgumentError(
        absl::StrCat(task.ToString(), " is no worker: it may not contribute")));
  }
  const PushId push{{task, Incarnation(request.sender().incarnation())},
                    PushSequence(request.sequence())};
  if (asynchronous()) {
    return reply(absl::FailedPreconditionError(
        "the job is asynchronous: pushes are applied, not contributed"));
  }
  const absl::Time deadline = ParkedUntil(clock_->Now(), request.wait_ms());
  if (beginning_) {
    if (parked_contributions_.full()) {
      return reply(NotYetAnswer(WaitingFor()));
    }
    return parked_contributions_.Park(push, std::move(reply), deadline);
  }
  AckThrough(push.from,
             std::min(request.acked_through(), request.sequence() - 1));
  if (const std::optional<proto::Verdict> verdict = ledger_.Find(push)) {
    return reply(ContributeAnswer(*verdict));
  }
  if (state_.phase() == proto::FAILED) {
    return reply(ContributeAnswer(proto::ABORTED));
  }
  if (!step_.has_value()) {
    return reply(absl::FailedPreconditionError(
        absl::StrCat("no step is open: waiting for ", WaitingFor())));
  }
  if (absl::Status status = Offer(request, push); !status.ok()) {
    return reply(status);
  }
  if (const std::optional<proto::Verdict> verdict = ledger_.Find(push)) {
    return reply(ContributeAnswer(*verdict));
  }
  // Who asks again does not wait for the earlier answer any more.
  auto earlier = parked_contributions_.Take(push);
  if (parked_contributions_.full()) {
    reply(NotYetAnswer(WaitingFor()));
  } else {
    parked_contributions_.Park(push, std::move(reply), deadline);
  }
  for (auto& parked : earlier) {
    parked.reply(ContributeAnswer(proto::VERDICT_UNSPECIFIED));
  }
  Proceed();
}

// Seats the push, or decides it at once. OK either way.
absl::Status Coordinator::Offer(const proto::ContributeRequest& request,
                                const PushId& push) {
  const GlobalStep number(request.step());
  if (const std::optional<uint32_t> seat = step_->SeatOf(push)) {
    const SeatOffer& offer = *step_->Find(*seat);
    if (number == step_->number() && *seat == request.seat() &&
        offer.examples == request.examples() &&
        offer.clip_factor == ClipFactorOf(request) &&
        offer.not_finite == request.not_finite()) {
      return absl::OkStatus();  // asked again
    }
    return absl::InvalidArgumentError(absl::StrCat(
        push.ToString(), " was offered to step ", step_->number().value(),
        ", seat ", *seat, " with ", offer.examples, " examples, clip factor ",
        offer.clip_factor, " before, now to step ", number.value(), ", seat ",
        request.seat(), " with ", request.examples(), ", ",
        ClipFactorOf(request)));
  }
  if (number > step_->number()) {
    return absl::FailedPreconditionError(
        absl::StrCat(push.ToString(), " is of step ", number.value(),
                     ", the open step is ", step_->number().value()));
  }
  if (absl::Status status = ledger_.CheckInWindow(push); !status.ok()) {
    return status;
  }
  if (request.seat() >= step_->num_seats() ||
      step_->OwnerOf(request.seat()) != ReplicaOf(push.from.worker)) {
    return absl::InvalidArgumentError(absl::StrCat(
        push.ToString(), ": seat ", request.seat(), " of ", step_->num_seats(),
        " is not the worker's: seats i with i mod ",
        declaration_->consistency().synchronous().total_num_replicas(), " = ",
        ReplicaOf(push.from.worker), " are"));
  }
  if (tickets_.has_value() && !tickets_->Find(push).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(push.ToString(), " has no ticket: take one first"));
  }
  if (number < step_->number()) {
    Refuse(push, proto::STALE);
    return absl::OkStatus();
  }
  if (step_->Find(request.seat()) != nullptr) {
    Refuse(push, proto::DUPLICATE);
    return absl::OkStatus();
  }
  // N are here already, or the job has made all its steps.
  if (step_->full() || AllStepsFixed()) {
    Refuse(push, proto::STALE);
    return absl::OkStatus();
  }
  if (absl::Status held = CheckHeld(request, push); !held.ok()) return held;
  SeatOffer offer;
  offer.push = push;
  offer.examples = request.examples();
  offer.clip_factor = ClipFactorOf(request);
  offer.loss = request.loss();
  offer.not_finite = request.not_finite();
  step_->Fill(request.seat(), std::move(offer));
  return absl::OkStatus();
}

absl::Status Coordinator::CheckHeld(const proto::ContributeRequest& request,
                                    const PushId& push) const {
  if (request.examples() == 0 || ClipFactorOf(request) == 0) {
    return absl::OkStatus();
  }
  return receipts_->CheckHeld(push, GlobalStep(request.step()),
                              request.receipts());
}

void Coordinator::Refuse(const PushId& push, proto::Verdict verdict) {
  ledger_.Record(push, verdict);
  progress_.AddRefused(verdict);
  if (tickets_.has_value() && tickets_->Return(push)) GrantTickets();
}

void Coordinator::OpenStep(GlobalStep number) {
  const auto& mode = declaration_->consistency().synchronous();
  step_ = Step(number, mode.replicas_to_aggregate(), mode.total_num_replicas());
  step_opened_ = clock_->Now();
  CountMembers();
}

void Coordinator::CountMembers() {
  members_.clear();
  if (!continues()) return;
  for (const auto& [task, session] : sessions_) {
    if (IsWorker(task) && session.alive) members_.insert(task);
  }
}

// N offers, or all that can come: nobody else has a ticket, or can get one; or,
// where those that are lost are not waited for, all members that are left.
bool Coordinator::StepIsFull() const {
  if (continues() && TooFewWorkers()) return false;
  if (step_->full()) return true;
  if (step_->offers().empty()) return false;  // [S3]
  if (tickets_.has_value() && tickets_->left() == 0 &&
      tickets_->num_out() == step_->offers().size()) {
    return true;
  }
  // The first step is made of as many as the cluster was started with.
  if (!continues() || !training_begun_.has_value()) return false;
  // Members are alive; nobody else's offer counts for theirs.
  if (step_->offers().size() < members_.size()) return false;
  return std::none_of(members_.begin(), members_.end(),
                      [&](const TaskId& member) {
                        return sessions_.at(member).alive &&
                               step_->Find(ReplicaOf(member)) == nullptr;
                      });
}

// Whatever was sent to all shards before is acknowledged by them; so a shard
// never sees a Commit ahead of its own version.
void Coordinator::Proceed() {
  if (state_.phase() != proto::TRAINING ||
      broadcast_.kind != Broadcast::kNone) {
    return;
  }
  if (FailIfDiverged()) return;
  if (!fences_due_.empty()) return StartFence();
  if (SaveIsDue()) return StartSave();
  if (step_.has_value() && !AllMade() && StepIsFull()) CloseStep();
}

void Coordinator::CloseStep() {
  commit_.Clear();
  *commit_.mutable_sender() = Self();
  commit_.set_step(step_->number().value());
  step_->FillIn(declaration_->consistency().synchronous().aggregation(),
                &commit_);
  const bool changes = std::any_of(
      commit_.contributions().begin(), commit_.contributions().end(),
      [](const auto& contribution) { return contribution.weight() != 0; });
  for (const proto::Optimizer& optimizer : declaration_->optimizers()) {
    *commit_.add_scalars() =
        ScalarsAt(optimizer, step_->number().value(), updates_ + 1);
  }
  if (changes) ++updates_;
  const float loss_scale = loss_scaler_.has_value() ? loss_scaler_->scale() : 0;
  if (loss_scaler_.has_value()) {
    const bool finite =
        std::none_of(step_->offers().begin(), step_->offers().end(),
                     [](const auto& entry) { return entry.second.not_finite; });
    loss_scaler_->OnStep(loss_scale, finite);
    commit_.set_loss_scale(loss_scaler_->scale());
  }
  std::vector<AcceptedPush> accepted;
  for (const auto& [seat, offer] : step_->offers()) {
    ledger_.Record(offer.push, proto::ACCEPTED);
    if (tickets_.has_value()) tickets_->Spend(offer.push);
    accepted.push_back({offer.push.from.worker, offer.examples, offer.loss,
                        /*staleness=*/std::nullopt, offer.not_finite});
    divergence_->OnContribution(offer.examples, offer.not_finite, loss_scale);
  }
  progress_.AddStep(accepted);
  OpenStep(step_->number().next());
  StartBroadcast(Broadcast::kCommit);
  // All that are parked fill seats of the step that is closed. Replies may come
  // back with further calls, so the verdicts are looked up before the first.
  auto contributions = parked_contributions_.TakeAll();
  std::vector<proto::Verdict> verdicts;
  for (const auto& parked : contributions) {
    verdicts.push_back(*ledger_.Find(parked.key));
  }
  for (size_t i = 0; i < contributions.size(); ++i) {
    contributions[i].reply(ContributeAnswer(verdicts[i]));
  }
}

void Coordinator::OnCommitted() {
  committed_ = GlobalStep(commit_.step()).next();
  last_commit_ = clock_->Now();
  if (AllMade()) return Conclude();
  Proceed();
}

// [C5]
void Coordinator::Conclude() {
  if (FailIfDiverged()) return;
  if (archive_ == nullptr) return Finish();
  if (!concluding_since_.has_value()) {
    concluding_since_ = clock_->Now();
    save_not_before_ = absl::InfinitePast();
  }
  Proceed();
}

// After a step's commit, so that the shards agree on the last version.
bool Coordinator::FailIfDiverged() {
  if (!divergence_.has_value() || !divergence_->diverged() || ended()) {
    return false;
  }
  Fail(absl::StrCat(
      "the job has diverged: the last ", divergence_->limit(),
      " contributions up to step ", committed_.value(),
      " were not finite (max_consecutive_not_finite in the job file). Lower "
      "the learning rate or clip the gradients, and train in another "
      "checkpoint directory, from the first values or, with --warm_start, from "
      "those of a checkpoint"));
  return true;
}

void Coordinator::Finish() {
  state_.set_phase(proto::DONE);
  done_at_ = clock_->Now();
  SetReporter(ChooseReporter());
  Answer(parked_tickets_.TakeAll());
  AnswerPlacements();
  Answer(parked_renewals_.TakeAll());
  Answer(parked_checkpoints_.TakeAll());
  EndWhenReady();
}

}  // namespace holdfast
