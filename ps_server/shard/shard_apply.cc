// SPDX-License-Identifier: Apache-2.0

// Asynchronous pushes, and what becomes of the pushes of fenced lives:
// docs/protocol/asynchronous.md, A3 and A5.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_limits.h"
#include "ps_server/protocol/request.h"
#include "ps_server/shard/shard.h"

namespace holdfast {
// ---- A3: applications ----

proto::ApplyResponse Shard::ApplyAnswer(proto::Verdict verdict) const {
  proto::ApplyResponse response;
  response.set_generation(generation_.value());
  *response.mutable_state() = state_;
  response.set_verdict(verdict);
  response.set_version(version().value());
  return response;
}

// In an asynchronous job, every decided push was applied.
proto::ApplyResponse Shard::AppliedAnswer(const PushId& push) const {
  proto::ApplyResponse response = ApplyAnswer(proto::ACCEPTED);
  response.set_staleness(ledger_.FindDecision(push)->staleness);
  response.set_receipt(receipts_->Applied(options_.index, push));
  return response;
}

proto::ApplyResponse Shard::NotYetAnswer(const WorkerLife& from) const {
  proto::ApplyResponse response = ApplyAnswer(proto::VERDICT_UNSPECIFIED);
  response.set_waiting_for(
      holding_ ? "a checkpoint to be taken"
               : PushId{from, ledger_.DecidedThrough(from).next()}.ToString());
  return response;
}

absl::Status Shard::CheckReceipts(const proto::ApplyRequest& request,
                                  const PushId& push) const {
  HOLDFAST_RETURN_IF_ERROR(receipts_->CheckTicket(push, request.scalars(),
                                                  request.ticket_receipt()));
  if (request.has_clip_factor() && request.clip_factor() == 0) {
    return absl::OkStatus();
  }
  return receipts_->CheckHeld(push, std::nullopt, request.receipts(),
                              options_.index);
}

void Shard::Apply(const proto::ApplyRequest& request,
                  Reply<proto::ApplyResponse> reply) {
  ApplyOrPark(request, std::move(reply));
  RetryApplies(ToWorkerLife(request.sender()));
}

void Shard::ApplyOrPark(const proto::ApplyRequest& request,
                        Reply<proto::ApplyResponse> reply) {
  if (IsOver(request.sender())) return reply(ApplyAnswer(proto::ABORTED));
  if (absl::Status status = CheckRunning(request.sender()); !status.ok()) {
    return reply(status);
  }
  const PushId id{ToWorkerLife(request.sender()),
                  PushSequence(request.sequence())};
  const auto refuse = [&](const absl::Status& status) {
    reply(absl::Status(status.code(),
                       absl::StrCat(id.ToString(), ": ", status.message())));
  };
  if (!asynchronous()) {
    return refuse(absl::FailedPreconditionError(
        "the job is synchronous: pushes are contributed, not applied"));
  }
  if (absl::Status status = CheckMayPush(id.from); !status.ok()) {
    return refuse(status);
  }
  if (IsFenced(id.from)) return reply(ApplyAnswer(proto::FENCED));
  if (!receives()) return reply(ApplyAnswer(proto::ACCEPTED));
  if (const std::optional<proto::Verdict> verdict = ledger_.Find(id)) {
    if (ledger_.FindDecision(id) != nullptr) return reply(AppliedAnswer(id));
    return reply(ApplyAnswer(*verdict));
  }
  absl::Status status = CheckScalars(request.scalars());
  if (status.ok()) status = CheckSequence(id);
  if (status.ok()) status = CheckReceipts(request, id);
  if (!status.ok()) return refuse(status);
  const PushSequence next = ledger_.DecidedThrough(id.from).next();
  if (holding_ || id.sequence > next) {
    // A worker that asks again no longer waits for the earlier answer.
    auto earlier = parked_applies_.Take(id);
    if (request.wait_ms() == 0 || parked_applies_.full()) {
      reply(NotYetAnswer(id.from));
    } else {
      parked_applies_.Park(id, std::move(reply),
                           ParkedUntil(clock_->Now(), request.wait_ms()),
                           request);
    }
    for (auto& parked : earlier) parked.reply(NotYetAnswer(id.from));
    return;
  }
  const float clip_factor =
      request.has_clip_factor() ? request.clip_factor() : 1.0f;
  if (absl::Status status =
          ApplyNext(id,
                    {proto::ACCEPTED, clip_factor, request.examples(),
                     /*staleness=*/0, request.not_finite()},
                    request.scalars());
      !status.ok()) {
    // This is the worker's mistake, not an internal error.
    return reply(absl::FailedPreconditionError(status.message()));
  }
  reply(AppliedAnswer(id));
  AnswerReached();
}

absl::Status Shard::ApplyNext(
    const PushId& push, Decision decision,
    const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars) {
  StepSum sum;
  if (decision.clip_factor != 0) {
    HOLDFAST_ASSIGN_OR_RETURN(auto whole, staged_.Find(push));
    decision.staleness = version().value() - whole.step.value();
    AddTo(&sum, std::move(whole), decision.clip_factor, /*share=*/1);
  }
  PublishNext(sum, scalars);
  ledger_.Record(push, decision);
  // The ticket of this push was handed out only after the pushes up to this
  // sequence were booked [P3], and no worker asks about a booked push any more.
  const uint64_t out =
      declaration_.consistency().asynchronous().pipeline_depth() + 1;
  if (push.sequence.value() > out) {
    ledger_.AckThrough(push.from, PushSequence(push.sequence.value() - out));
  }
  staged_.Drop(push);
  staged_.Reserve({push.from, push.sequence.next()});
  return absl::OkStatus();
}

void Shard::RetryApplies(const WorkerLife& from) {
  for (;;) {
    const auto parked = parked_applies_.Between(
        {from, PushSequence(0)},
        {from, PushSequence(std::numeric_limits<uint64_t>::max())});
    if (parked.empty()) return;
    const PushId lowest = parked.front()->key;
    if (!IsFenced(from) &&
        (holding_ || lowest.sequence > ledger_.DecidedThrough(from).next())) {
      return;
    }
    for (auto& apply : parked_applies_.Take(lowest)) {
      ApplyOrPark(apply.request, std::move(apply.reply));
    }
  }
}

// ---- A5: fences ----

void Shard::Fence(const proto::FenceRequest& request,
                  Reply<proto::FenceResponse> reply) {
  if (absl::Status status = CheckFromCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  proto::FenceResponse response;
  response.set_generation(generation_.value());
  std::vector<WorkerLife> lives;
  for (const proto::WorkerLife& message : request.lives()) {
    const WorkerLife life = ToWorkerLife(message);
    Fenced& fenced = fenced_[life.worker];
    fenced.through = std::max(fenced.through, life.incarnation);
    // In a synchronous job only Commit decides which pushes count.
    if (asynchronous()) AddKept(life, response.mutable_applied());
    lives.push_back(life);
  }
  reply(std::move(response));
  for (const WorkerLife& life : lives) RetryApplies(life);
}

void Shard::AddKept(
    const WorkerLife& life,
    google::protobuf::RepeatedPtrField<proto::AppliedPush>* applied) const {
  for (const auto& [sequence, decision] : ledger_.Kept(life)) {
    proto::AppliedPush& push = *applied->Add();
    proto::TaskId& worker = *push.mutable_from()->mutable_worker();
    worker.set_job(life.worker.job);
    worker.set_index(life.worker.index);
    push.mutable_from()->set_incarnation(life.incarnation.value());
    push.set_sequence(sequence.value());
    push.set_clip_factor(decision.clip_factor);
    push.set_examples(decision.examples);
    push.set_staleness(decision.staleness);
    push.set_not_finite(decision.not_finite);
  }
}

bool Shard::IsResolved(const WorkerLife& life) const {
  const auto fenced = fenced_.find(life.worker);
  return fenced != fenced_.end() &&
         life.incarnation <= fenced->second.resolved_through;
}

absl::Status Shard::ApplyMissing(
    const google::protobuf::RepeatedPtrField<proto::AppliedPush>& applied) {
  if (!asynchronous() && !applied.empty()) {
    return absl::InternalError(
        absl::StrCat("a push to apply at /job:ps/task:", options_.index,
                     ": the job is synchronous"));
  }
  if (!receives()) return absl::OkStatus();
  for (const proto::AppliedPush& push : applied) {
    const PushId id{ToWorkerLife(push.from()), PushSequence(push.sequence())};
    if (IsResolved(id.from) || ledger_.Find(id).has_value()) continue;
    absl::Status status = CheckScalars(push.scalars());
    if (status.ok() && id.sequence != ledger_.DecidedThrough(id.from).next()) {
      status = absl::InternalError("it is not the next in its order");
    }
    if (status.ok()) {
      status = ApplyNext(id,
                         {proto::ACCEPTED, push.clip_factor(), push.examples(),
                          /*staleness=*/0, push.not_finite()},
                         push.scalars());
    }
    if (!status.ok()) {
      return absl::InternalError(
          absl::StrCat(id.ToString(), " at /job:ps/task:", options_.index, ": ",
                       status.message()));
    }
  }
  return absl::OkStatus();
}

// No Resolve comes between Hold and Save, because the coordinator has one
// broadcast in progress at a time. If one did, the checkpoint would contain
// pushes that its position does not count, and Save would find a version that
// it does not expect.
void Shard::Resolve(const proto::ResolveRequest& request,
                    Reply<proto::ResolveResponse> reply) {
  if (absl::Status status = CheckFromCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  if (absl::Status status = ApplyMissing(request.applied()); !status.ok()) {
    return reply(
        absl::InternalError(absl::StrCat("resolution of ", status.message())));
  }
  for (const proto::WorkerLife& message : request.lives()) {
    const WorkerLife life = ToWorkerLife(message);
    if (IsResolved(life)) continue;
    fenced_[life.worker].resolved_through = life.incarnation;
    staged_.DropAll(life);
    ledger_.Forget(life);
  }
  proto::ResolveResponse response;
  response.set_generation(generation_.value());
  response.set_version(version().value());
  reply(std::move(response));
  AnswerReached();
}

}  // namespace holdfast
