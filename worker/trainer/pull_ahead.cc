// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/pull_ahead.h"

#include <utility>

#include "client/phase_meter.h"

namespace holdfast {
namespace {

using Phase = PhaseMeter::Phase;

// How long it may take to notice that a wait is abandoned. The arrival of a
// result ends a wait at once.
constexpr absl::Duration kSlice = absl::Milliseconds(100);

}  // namespace

PullAhead::PullAhead(TrainingContext* context, uint64_t longest_wait)
    : context_(*context), longest_wait_(longest_wait), strand_("pull ahead") {
  values_.SetHostMemory(context->host_memory());
}

PullAhead::~PullAhead() { given_up_ = true; }

void PullAhead::Start() {
  {
    absl::MutexLock lock(&mutex_);
    ticket_.reset();
    pulled_.reset();
  }
  strand_.Post([this] { Run(); });
}

absl::StatusOr<std::optional<Ticket>> PullAhead::AwaitTicket() {
  const TracedPhase waiting = context_.Waiting(Phase::kTicket, "ticket");
  absl::MutexLock lock(&mutex_);
  const auto is_there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ticket_.has_value();
  };
  mutex_.Await(absl::Condition(&is_there));
  return *ticket_;
}

absl::Status PullAhead::Take(Parameters* now) {
  const TracedPhase waiting = context_.Waiting(Phase::kVersion, "version");
  absl::MutexLock lock(&mutex_);
  const auto is_there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pulled_.has_value();
  };
  mutex_.Await(absl::Condition(&is_there));
  std::swap(*now, values_);
  values_.Release();
  return *pulled_;
}

template <typename Done>
bool PullAhead::WaitFor(const Done& done) const {
  while (!given_up_) {
    if (done(SteadyNow() + kSlice)) return true;
  }
  return false;
}

void PullAhead::Run() {
  const absl::Time deadline = context_.StepDeadline(longest_wait_);
  const auto request = context_.cluster().StartTakeTicket();
  WaitFor([&](absl::Time until) {
    return request->WaitUntilDone(until) || SteadyNow() > deadline;
  });
  auto ticket = request->Await(given_up_ ? SteadyNow() : deadline);
  const bool goes_on = ticket.ok() && ticket->has_value();
  const std::optional<Ticket> next = goes_on ? *ticket : std::nullopt;
  {
    absl::MutexLock lock(&mutex_);
    ticket_ = std::move(ticket);
  }
  if (next.has_value()) Pull(*next);
}

void PullAhead::Pull(const Ticket& ticket) {
  absl::Status status = context_.batches().Prepare(ticket.index);
  if (status.ok()) {
    // If the batch is not made by then, the call that takes it returns the
    // error.
    const absl::Time made_by = context_.StepDeadline();
    const TableBags* bags = nullptr;
    WaitFor([&](absl::Time until) {
      return context_.batches().AwaitMade(ticket.index, until, &bags) ||
             SteadyNow() > made_by;
    });
    context_.WantRows(bags, &values_);
    const auto pull = context_.cluster().StartPull(GlobalStep(0), &values_);
    const absl::Time deadline = context_.StepDeadline();
    WaitFor([&](absl::Time until) {
      return pull->WaitUntilDone(until) || SteadyNow() > deadline;
    });
    status = pull->Await(given_up_ ? SteadyNow() : deadline);
  }
  absl::MutexLock lock(&mutex_);
  pulled_ = std::move(status);
}

}  // namespace holdfast
