#include "client/call_group.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/call.h"
#include "common/clock.h"
#include "common/rpc/deadline.h"

namespace holdfast::client {
namespace {

// A call of nobody, made later.
class Timer : public Call, public std::enable_shared_from_this<Timer> {
 public:
  Timer(std::shared_ptr<Context> context,
        std::shared_ptr<CallGroup::State> group,
        absl::AnyInvocable<void()> what)
      : context_(std::move(context)),
        group_(std::move(group)),
        what_(std::move(what)) {}

  void Start(absl::Duration delay) ABSL_LOCKS_EXCLUDED(context_->mutex) {
    absl::MutexLock lock(&context_->mutex);
    if (group_->cancelled) return;
    group_->calls.insert(shared_from_this());
    ++context_->calls_out;
    underway.pause = std::make_shared<grpc::Alarm>();
    underway.pause->Set(GrpcDeadline(SteadyNow() + delay),
                        [self = shared_from_this()](bool) { self->Ring(); });
  }

 private:
  void Ring() {
    absl::ReleasableMutexLock lock(&context_->mutex);
    underway.pause = nullptr;
    if (group_->cancelled) return Finish();
    ++group_->answering;
    lock.Release();
    what_();
    absl::MutexLock again(&context_->mutex);
    --group_->answering;
    Finish();
  }

  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex) {
    group_->calls.erase(shared_from_this());
    --context_->calls_out;
  }

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<CallGroup::State> group_;
  absl::AnyInvocable<void()> what_;
};

}  // namespace

CallGroup::CallGroup(std::shared_ptr<Context> context)
    : context_(std::move(context)), state_(std::make_shared<State>()) {}

CallGroup::CallGroup(std::shared_ptr<Context> context,
                     const proto::Sender& sender)
    : context_(std::move(context)),
      state_(std::make_shared<State>(State{sender})) {}

CallGroup::~CallGroup() { Cancel(); }

void CallGroup::Cancel() {
  std::vector<Call::Underway> underway;
  {
    absl::MutexLock lock(&context_->mutex);
    state_->cancelled = true;
    for (const std::shared_ptr<Call>& call : state_->calls) {
      underway.push_back(call->underway);
    }
  }
  for (Call::Underway& call : underway) call.Cancel();
  absl::MutexLock lock(&context_->mutex);
  const auto quiet = [this] { return state_->answering == 0; };
  context_->mutex.Await(absl::Condition(&quiet));
}

void CallGroup::After(absl::Duration delay, absl::AnyInvocable<void()> what) {
  std::make_shared<Timer>(context_, state_, std::move(what))->Start(delay);
}

absl::Status CallGroup::Await(absl::Time deadline,
                              absl::FunctionRef<bool()> done,
                              absl::FunctionRef<std::string()> what) {
  return AwaitUntil(deadline, /*regardless=*/false, done, what);
}

absl::Status CallGroup::AwaitRegardless(absl::Time deadline,
                                        absl::FunctionRef<bool()> done,
                                        absl::FunctionRef<std::string()> what) {
  return AwaitUntil(deadline, /*regardless=*/true, done, what);
}

absl::Status CallGroup::AwaitUntil(absl::Time deadline, bool regardless,
                                   absl::FunctionRef<bool()> done,
                                   absl::FunctionRef<std::string()> what) {
  const Timing& timing = context_->timing;
  absl::Mutex& mutex = context_->mutex;
  absl::Time report = context_->on_waiting == nullptr
                          ? absl::InfiniteFuture()
                          : SteadyNow() + timing.first_report;
  const auto is_over = [&] {
    return done() || (!regardless && context_->IsOver(state_->sender));
  };
  const absl::FunctionRef<bool()> over = is_over;
  absl::MutexLock lock(&mutex);
  Context::Polling& polling = context_->polling;
  ++polling.waiters;
  absl::Status result = absl::OkStatus();
  while (!over()) {
    const absl::Time now = SteadyNow();
    const absl::Time until = std::min(deadline, report);
    if (now >= until) {
      std::string text = what();
      const absl::Status trouble = AddTrouble(&text);
      if (deadline <= report) {
        text = absl::StrCat("waited in vain for ", text);
        const bool unreachable =
            IsTransient(trouble) && !absl::IsDeadlineExceeded(trouble);
        result = unreachable ? absl::UnavailableError(text)
                             : absl::DeadlineExceededError(text);
        break;
      }
      --polling.waiters;  // it does not read what comes in meanwhile
      mutex.Unlock();
      context_->on_waiting(text);
      mutex.Lock();
      ++polling.waiters;
      report = SteadyNow() + timing.report_every;
    } else if (!polling.busy) {
      polling.busy = true;
      ++polling.turns;
      polling.over = &over;
      polling.poller = std::this_thread::get_id();
      mutex.Unlock();
      context_->queue.Poll(until);
      mutex.Lock();
      polling.over = nullptr;
      polling.busy = false;
    } else if (std::exchange(polling.may_be_woken, false)) {
      mutex.Unlock();  // gRPC takes locks of its own
      context_->queue.Wake();
      mutex.Lock();
    } else {
      const auto may_go_on = [&] { return over() || !polling.busy; };
      mutex.AwaitWithTimeout(absl::Condition(&may_go_on), until - SteadyNow());
    }
  }
  --polling.waiters;
  if (!result.ok()) return result;
  return done() ? absl::OkStatus() : context_->WhyOver(state_->sender);
}

absl::Status CallGroup::AddTrouble(std::string* what) const {
  for (const std::shared_ptr<Call>& call : state_->calls) {
    if (call->trouble.ok()) continue;
    if (!absl::StrContains(*what, call->peer)) {
      absl::StrAppend(what, ": ", call->peer);
    }
    absl::StrAppend(what, ": ", call->trouble.message());
    return call->trouble;
  }
  return absl::OkStatus();
}

}  // namespace holdfast::client
