// SPDX-License-Identifier: Apache-2.0
#include "client/call_group.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace holdfast::client {
namespace {

class Timer : public Underway, public std::enable_shared_from_this<Timer> {
 public:
  Timer(std::shared_ptr<Context> context, std::shared_ptr<GroupState> group,
        absl::AnyInvocable<void()> what)
      : context_(std::move(context)),
        group_(std::move(group)),
        what_(std::move(what)) {}

  void Start(absl::Duration delay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex) {
    if (group_->cancelled) return;
    group_->underway.insert(shared_from_this());
    operation = context_->transport.After(
        delay, [self = shared_from_this()] { self->Ring(); });
  }

 private:
  void Ring() {
    {
      absl::MutexLock lock(&context_->mutex);
      operation = nullptr;
      if (group_->cancelled) return Finish();
      ++group_->answering;
    }
    what_();
    absl::MutexLock lock(&context_->mutex);
    --group_->answering;
    Finish();
  }

  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex) {
    group_->underway.erase(shared_from_this());
  }

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<GroupState> group_;
  absl::AnyInvocable<void()> what_;
};

}  // namespace

CallGroup::CallGroup(std::shared_ptr<Context> context)
    : context_(std::move(context)), state_(std::make_shared<GroupState>()) {}

CallGroup::CallGroup(std::shared_ptr<Context> context,
                     std::shared_ptr<const proto::Sender> sender)
    : context_(std::move(context)),
      state_(std::make_shared<GroupState>(GroupState{std::move(sender)})) {}

CallGroup::~CallGroup() { Cancel(); }

void CallGroup::Cancel() {
  std::set<std::shared_ptr<Underway>> underway;
  std::vector<std::shared_ptr<Transport::Operation>> operations;
  {
    absl::MutexLock lock(&context_->mutex);
    state_->cancelled = true;
    underway.swap(state_->underway);
    for (const std::shared_ptr<Underway>& call : underway) {
      if (call->operation != nullptr) operations.push_back(call->operation);
    }
  }
  for (const auto& operation : operations) operation->Cancel();
  absl::MutexLock lock(&context_->mutex);
  const auto quiet = [this] { return state_->answering == 0; };
  context_->mutex.Await(absl::Condition(&quiet));
}

void CallGroup::After(absl::Duration delay, absl::AnyInvocable<void()> what) {
  absl::MutexLock lock(&context_->mutex);
  std::make_shared<Timer>(context_, state_, std::move(what))->Start(delay);
}

void CallGroup::After(Backoff* backoff, absl::AnyInvocable<void()> what) {
  absl::MutexLock lock(&context_->mutex);
  std::make_shared<Timer>(context_, state_, std::move(what))
      ->Start(backoff->Next(context_->transport.random()));
}

absl::Status CallGroup::Await(absl::Time deadline,
                              absl::FunctionRef<bool()> done,
                              absl::FunctionRef<std::string()> what) const {
  return AwaitUntil(deadline, /*regardless=*/false, done, what);
}

absl::Status CallGroup::AwaitRegardless(
    absl::Time deadline, absl::FunctionRef<bool()> done,
    absl::FunctionRef<std::string()> what) const {
  return AwaitUntil(deadline, /*regardless=*/true, done, what);
}

bool CallGroup::Wait(absl::Time until, absl::FunctionRef<bool()> done,
                     absl::FunctionRef<std::string()> what,
                     NextReport* report) const {
  absl::MutexLock lock(&context_->mutex);
  const auto over = [&] { return done() || IsOver(); };
  return WaitLocked(until, over, what, report);
}

bool CallGroup::WaitLocked(absl::Time until, absl::FunctionRef<bool()> over,
                           absl::FunctionRef<std::string()> what,
                           NextReport* report) const {
  const Timing& timing = context_->timing;
  Transport& transport = context_->transport;
  if (!report->has_value() && !over()) {
    *report = context_->on_waiting == nullptr
                  ? absl::InfiniteFuture()
                  : transport.Now() + timing.first_report;
  }
  while (!over()) {
    transport.Wait(over, std::min(until, **report));
    if (over()) break;
    if (until <= **report) return false;
    std::string text = what();
    AddTrouble(&text).IgnoreError();
    context_->mutex.Unlock();
    context_->on_waiting(text);
    context_->mutex.Lock();
    *report = transport.Now() + timing.report_every;
  }
  report->reset();
  return true;
}

absl::Status CallGroup::AwaitUntil(
    absl::Time deadline, bool regardless, absl::FunctionRef<bool()> done,
    absl::FunctionRef<std::string()> what) const {
  const auto over = [&] { return done() || (!regardless && IsOver()); };
  NextReport report;
  absl::MutexLock lock(&context_->mutex);
  if (WaitLocked(deadline, over, what, &report)) {
    return done() ? absl::OkStatus() : context_->WhyOver(state_->sender.get());
  }
  std::string text = what();
  const absl::Status trouble = AddTrouble(&text);
  text = absl::StrCat("timed out waiting for ", text);
  const bool unreachable =
      IsTransient(trouble) && !absl::IsDeadlineExceeded(trouble);
  return unreachable ? absl::UnavailableError(text)
                     : absl::DeadlineExceededError(text);
}

absl::Status CallGroup::AddTrouble(std::string* what) const {
  for (const std::shared_ptr<Underway>& call : state_->underway) {
    if (call->trouble.ok()) continue;
    const std::string& peer = context_->ps_names[call->ps];
    if (!absl::StrContains(*what, peer)) absl::StrAppend(what, ": ", peer);
    absl::StrAppend(what, ": ", call->trouble.message());
    return call->trouble;
  }
  return absl::OkStatus();
}

}  // namespace holdfast::client
