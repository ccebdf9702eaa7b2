// SPDX-License-Identifier: Apache-2.0
#include "client/call.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast::client {
namespace {

// Attempts to call a ps after the job is done, before the ps is assumed to have
// ended, too.
constexpr int kAttemptsWhenDone = 3;

}  // namespace

Call::Call(std::shared_ptr<Context> context, std::shared_ptr<GroupState> group,
           const Rpc& rpc, uint32_t ps)
    : context_(std::move(context)), group_(std::move(group)), rpc_(rpc) {
  this->ps = ps;
}

void Call::Start() {
  {
    absl::MutexLock lock(&context_->mutex);
    if (group_->cancelled) return;
    group_->underway.insert(shared_from_this());
  }
  StartAttempt();
}

void Call::StartAttempt() {
  std::shared_ptr<Transport::AttemptOperation> operation;
  {
    absl::MutexLock lock(&context_->mutex);
    this->operation = nullptr;
    if (group_->cancelled) return Finish();
    began_ = context_->transport.Now();
    Attempt attempt;
    attempt.rpc = &rpc_;
    attempt.ps = ps;
    attempt.timeout = context_->timing.*rpc_.patience;
    FillIn(group_->sender != nullptr ? *group_->sender : context_->sender(),
           &attempt);
    attempt.done = [self = shared_from_this()](const absl::Status& status) {
      self->OnAnswer(status);
    };
    operation = context_->transport.Prepare(std::move(attempt));
    this->operation = operation;
  }
  operation->Start();
}

void Call::OnAnswer(absl::Status status) {
  bool unexplained;
  bool refused;
  {
    absl::MutexLock lock(&context_->mutex);
    operation = nullptr;
    if (status.ok()) {
      const Says says = WhatItSays();
      if (says.generation.has_value()) {
        context_->Note(*says.generation, says.state, says.durable_step);
      }
      if (says.verdict == proto::ABORTED) {
        status = absl::AbortedError("the generation of the call is over");
      }
    }
    if (group_->cancelled) return Finish();
    refused = IsRefused(status);
    if (!IsTransient(status)) {
      in_vain_ = 0;
    } else if (++in_vain_; !IsPsGone()) {
      trouble = std::move(status);
      return Pause();
    } else {
      status = absl::FailedPreconditionError(
          absl::StrCat("the job is done, and the ps has ended or cannot be "
                       "reached: ",
                       status.message()));
    }
    unexplained = IsUnexplained(status);
    trouble = unexplained ? status : absl::OkStatus();
    ++group_->answering;
  }
  Next next = Next::kAgain;
  if (!unexplained) {
    if (!status.ok()) {
      status = absl::Status(
          status.code(),
          absl::StrCat(context_->ps_names[ps], ": ", status.message()));
    }
    if (refused && context_->on_refused) context_->on_refused(status);
    next = Tell(status);
  } else if (context_->on_unexplained) {
    context_->on_unexplained();
  }
  absl::ReleasableMutexLock lock(&context_->mutex);
  --group_->answering;
  if (next == Next::kDone || group_->cancelled ||
      context_->IsOver(group_->sender.get())) {
    return Finish();
  }
  // If the peer had parked the call, it is called again at once. Otherwise
  // after a pause, to avoid a busy loop.
  if (context_->transport.Now() - began_ < context_->timing.park / 2) {
    return Pause();
  }
  backoff_.Reset();
  lock.Release();
  StartAttempt();
}

bool Call::IsUnexplained(const absl::Status& error) const {
  return rpc_.request_has_sender &&
         (absl::IsAborted(error) ||
          (rpc_.asks_coordinator && absl::IsNotFound(error)));
}

// Other errors pass, are explained by news of the job, or are part of a
// protocol: no room for one more push, a tensor that cannot be lent, a version
// that is no longer held.
bool Call::IsRefused(const absl::Status& error) const {
  return rpc_.moves_job &&
         (absl::IsInvalidArgument(error) || absl::IsFailedPrecondition(error));
}

bool Call::IsPsGone() const {
  return group_->ends_with_job && in_vain_ >= kAttemptsWhenDone &&
         context_->state().phase() == proto::DONE;
}

void Call::Pause() {
  operation = context_->transport.After(
      backoff_.Next(context_->transport.random()),
      [self = shared_from_this()] { self->StartAttempt(); });
}

void Call::Finish() { group_->underway.erase(shared_from_this()); }

}  // namespace holdfast::client
