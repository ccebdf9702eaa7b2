// SPDX-License-Identifier: Apache-2.0
#include "client/push.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/follow_up.h"
#include "client/gradients.h"
#include "client/part_sender.h"
#include "client/pull.h"
#include "client/push_exchange.h"
#include "client/push_facts.h"
#include "client/row_reads.h"
#include "common/base/status_macros.h"

namespace holdfast::client {
namespace {

// A push, from its first gradient to the values that come after it:
//
//   kSending     parts are sent as they become ready (PartSender); if
//                everything fits in one call, they wait for the rest of it
//   kExchanging  contributed: everything in one call (PushExchange), if
//                possible
//   kFollowing   contributed, and held by every shard or without examples: the
//                verdict is requested (FollowUp)
//   kDecided     the verdict has arrived, and the values, if any, are being
//                pulled
//
// kSending -> kExchanging | kFollowing; kExchanging -> kFollowing | kDecided |
// kSending, if gradients that are larger than a call could not be lent;
// kFollowing -> kDecided. In any stage, an error ends the push.
class PushHandle final : public Cluster::Push {
 public:
  // The sequence must be held; it is released at the end.
  explicit PushHandle(PushFacts facts)
      : push_(std::move(facts)),
        context_(push_.context()),
        gradients_(push_.sequence, push_.layout(), push_.plan(),
                   &push_.generation->encoder, context_.transport.neighbors(),
                   push_.steps.front()),
        part_calls_(push_.generation->context, push_.generation->sender),
        calls_(push_.generation->context, push_.generation->sender),
        sender_(&push_, &gradients_, &part_calls_, [this] { OnSent(); }),
        follow_up_(MakeFollowUp()) {
    if (push_.announced.empty() &&
        PushExchange::Fits(push_.generation->placement)) {
      exchange_.emplace(&push_, &gradients_, follow_up_.get(), &calls_,
                        [this](const absl::StatusOr<PushExchange::Answer>& a) {
                          OnExchanged(a);
                        });
    }
  }

  ~PushHandle() override {
    GiveUp();
    absl::MutexLock lock(&context_.mutex);
    push_.generation->sequences.Release(push_.sequence);
  }

  // Sends the parts that need no gradient.
  void Start() {
    if (!exchange_.has_value()) sender_.Start();
  }

  PushSequence sequence() const override { return push_.sequence; }

  absl::Span<float> Memory(size_t variable) override {
    return gradients_.Memory(variable);
  }

  absl::Status Add(size_t variable, absl::Span<const float> gradient) override {
    absl::Status status = gradients_.Check(variable, gradient);
    if (status.ok()) status = WhyOver();
    if (status.ok()) status = gradients_.Take(variable, gradient);
    if (!status.ok()) return status;
    sender_.OnHandedIn(variable);
    return absl::OkStatus();
  }

  absl::Status AddRows(size_t table, absl::Span<const uint64_t> ids,
                       absl::Span<const float> gradients) override {
    absl::Status status = gradients_.CheckRows(table, ids, gradients);
    if (status.ok()) status = WhyOver();
    if (!status.ok()) return status;
    if (gradients_.TakeRows(table, ids, gradients)) CloseRows();
    return absl::OkStatus();
  }

  bool WaitUntilHeld(absl::Time until) override {
    if (!CheckMayBeHeld().ok()) return true;
    CloseRows();
    sender_.SendAll();
    return part_calls_.Wait(
        until, [this] { return !error_.ok() || sender_.ended(); },
        [this] { return sender_.Missing(); }, &sent_report_);
  }

  absl::Status AwaitHeld(absl::Time deadline) override {
    absl::Status status = CheckMayBeHeld();
    if (status.ok()) {
      CloseRows();
      sender_.SendAll();
      status = part_calls_.Await(
          deadline, [this] { return !error_.ok() || sender_.ended(); },
          [this] { return sender_.Missing(); });
    }
    if (status.ok()) {
      part_calls_.Cancel();
      gradients_.AwaitReturn();
    } else {
      GiveUp();
    }
    absl::MutexLock lock(&context_.mutex);
    if (error_.ok()) error_ = status;
    return error_;
  }

  absl::Status Contribute(const Contribution& contribution,
                          Parameters* next) override {
    HOLDFAST_RETURN_IF_ERROR(follow_up_->Check(contribution));
    if (next != nullptr) {
      HOLDFAST_RETURN_IF_ERROR(CheckWantedRows(push_.layout(), *next));
    }
    bool exchange;
    bool rows_closed;
    {
      absl::MutexLock lock(&context_.mutex);
      if (contribution_.has_value()) {
        return absl::FailedPreconditionError("Contribute was called before");
      }
      HOLDFAST_RETURN_IF_ERROR(push_.generation->WhyOver());
      if (!error_.ok()) return error_;
      if (contribution.examples > 0) {
        HOLDFAST_RETURN_IF_ERROR(gradients_.CheckComplete());
      }
      contribution_ = contribution;
      next_ = next;
      // If `next` kept its old values in place, the ps would have to lend one
      // version more than planned.
      if (next != nullptr) next->Release();
      rows_closed = gradients_.CloseRows();
      exchange = exchange_.has_value() && !sender_.started() &&
                 exchange_->FitsRows(contribution, next);
      if (exchange) stage_ = Stage::kExchanging;
    }
    if (empty()) {
      // None of the gradient counts, whatever the verdict.
      sender_.Stop();
      part_calls_.Cancel();
      gradients_.AwaitReturn();
      push_.generation->encoder.Settle(push_.sequence, false);
    }
    if (rows_closed) sender_.OnRowsClosed();
    if (exchange) {
      exchange_->Start(contribution, next);
    } else {
      sender_.SendAll();
      FollowWhenSent();
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Cluster::Push> StartAgain() override;

  bool done() const override {
    Cluster::Pull* pull;
    {
      absl::MutexLock lock(&context_.mutex);
      if (over() || part_calls_.IsOver()) return true;
      if (stage_ != Stage::kDecided) return false;
      pull = pull_.get();
    }
    return pull == nullptr || pull->done();
  }

  bool WaitUntilDone(absl::Time until) override {
    if (!contribution_.has_value()) return true;
    const bool sent = part_calls_.Wait(
        until, [this] { return over() || stage_ != Stage::kSending; },
        [this] { return sender_.Missing(); }, &sent_report_);
    if (!sent) return false;
    const bool decided = calls_.Wait(
        until, [this] { return over() || stage_ == Stage::kDecided; },
        [this] { return MissingVerdict(); }, &verdict_report_);
    if (!decided) return false;
    {
      absl::MutexLock lock(&context_.mutex);
      if (over() || next_ == nullptr || pull_ == nullptr) return true;
    }
    return pull_->WaitUntilDone(until);
  }

  absl::StatusOr<Cluster::Outcome> Await(absl::Time deadline) override {
    absl::Status status = AwaitDecided(deadline);
    if (status.ok()) status = AwaitNext(deadline);
    // In any case, `next` belongs to the caller again.
    return End(status);
  }

  absl::StatusOr<Cluster::Outcome> AwaitVerdict(
      absl::Time deadline, std::unique_ptr<Cluster::Pull>* rest) override {
    const absl::Status status = AwaitDecided(deadline);
    std::unique_ptr<Cluster::Pull> pull;
    {
      absl::MutexLock lock(&context_.mutex);
      if (status.ok() && error_.ok() && next_ != nullptr) {
        pull = std::move(pull_);
      }
    }
    *rest = std::move(pull);
    return End(status);
  }

 private:
  enum class Stage { kSending, kExchanging, kFollowing, kDecided };

  std::unique_ptr<FollowUp> MakeFollowUp() {
    auto on_outcome = [this](const absl::StatusOr<Cluster::Outcome>& outcome) {
      OnOutcome(outcome);
    };
    return push_.asynchronous()
               ? MakeApplication(&push_, &calls_, std::move(on_outcome))
               : MakeOffer(&push_, &calls_, std::move(on_outcome));
  }

  // Declares that no more rows follow, after which parts may be sent, because
  // their number is known.
  void CloseRows() {
    if (gradients_.CloseRows()) sender_.OnRowsClosed();
  }

  absl::Status CheckMayBeHeld() const ABSL_LOCKS_EXCLUDED(context_.mutex) {
    if (contribution_.has_value()) {
      return absl::FailedPreconditionError(
          "AwaitHeld must be called before Contribute");
    }
    absl::MutexLock lock(&context_.mutex);
    if (!error_.ok()) return error_;
    if (sender_.verdict() != proto::VERDICT_UNSPECIFIED) {
      return absl::OkStatus();
    }
    return gradients_.CheckComplete();
  }

  // Whether no part is needed, whatever was handed in.
  bool empty() const { return contribution_->examples == 0; }

  bool over() const ABSL_SHARED_LOCKS_REQUIRED(context_.mutex) {
    return !error_.ok();
  }

  absl::Status WhyOver() const ABSL_LOCKS_EXCLUDED(context_.mutex) {
    absl::MutexLock lock(&context_.mutex);
    HOLDFAST_RETURN_IF_ERROR(push_.generation->WhyOver());
    return error_.ok() ? sender_.error() : error_;
  }

  std::string MissingVerdict() const
      ABSL_SHARED_LOCKS_REQUIRED(context_.mutex) {
    if (stage_ == Stage::kSending) return sender_.Missing();
    return stage_ == Stage::kExchanging ? exchange_->Missing()
                                        : follow_up_->Missing();
  }

  // Called when all parts have been acknowledged, or a shard has said why they
  // will not be.
  void OnSent() ABSL_LOCKS_EXCLUDED(context_.mutex) {
    {
      absl::MutexLock lock(&context_.mutex);
      if (error_.ok()) error_ = sender_.error();
      if (!error_.ok()) return;
    }
    FollowWhenSent();
  }

  // Called by the user's thread and by answers.
  void FollowWhenSent() ABSL_LOCKS_EXCLUDED(context_.mutex) {
    proto::Verdict verdict;
    {
      absl::MutexLock lock(&context_.mutex);
      if (!error_.ok() || !contribution_.has_value() ||
          stage_ != Stage::kSending) {
        return;
      }
      if (!empty() && !sender_.ended()) return;
      stage_ = Stage::kFollowing;
      verdict = sender_.verdict();
    }
    // A push that a shard has found too late is offered all the same: the
    // coordinator gives and counts the verdict.
    if (push_.asynchronous() && verdict != proto::VERDICT_UNSPECIFIED) {
      return OnOutcome(Cluster::Outcome{verdict});
    }
    Follow();
  }

  // In a synchronous job the pull is parked until the step is committed.
  void Follow() ABSL_LOCKS_EXCLUDED(context_.mutex) {
    if (!push_.asynchronous()) Pull();
    follow_up_->Start(*contribution_);
  }

  void OnExchanged(const absl::StatusOr<PushExchange::Answer>& answer)
      ABSL_LOCKS_EXCLUDED(context_.mutex) {
    const bool not_lent = absl::IsOutOfRange(answer.status());
    {
      absl::MutexLock lock(&context_.mutex);
      if (!answer.ok() && !not_lent) {
        error_ = answer.status();
        return;
      }
      stage_ = not_lent ? Stage::kSending : Stage::kFollowing;
      if (!not_lent && answer->brought_next) next_ = nullptr;
    }
    if (not_lent) {
      // The push does not fit in one call.
      sender_.SendAll();
      return FollowWhenSent();
    }
    if (answer->response.verdict() == proto::VERDICT_UNSPECIFIED) {
      Follow();
    } else {
      follow_up_->Take(*contribution_, answer->response);
    }
  }

  void OnOutcome(const absl::StatusOr<Cluster::Outcome>& outcome)
      ABSL_LOCKS_EXCLUDED(context_.mutex) {
    const bool followed =
        outcome.ok() && follow_up_->IsFollowed(outcome->verdict);
    if (followed) Pull();
    absl::MutexLock lock(&context_.mutex);
    if (!outcome.ok()) {
      if (error_.ok()) error_ = outcome.status();
      return;
    }
    outcome_ = *outcome;
    if (!followed) next_ = nullptr;
    stage_ = Stage::kDecided;
  }

  // Begins to pull the next values, once.
  void Pull() ABSL_LOCKS_EXCLUDED(context_.mutex) {
    {
      absl::MutexLock lock(&context_.mutex);
      if (next_ == nullptr || pull_ != nullptr) return;
    }
    std::unique_ptr<Cluster::Pull> pull =
        StartPull(push_.generation, follow_up_->next_version(), next_);
    absl::MutexLock lock(&context_.mutex);
    pull_ = std::move(pull);
  }

  absl::Status AwaitDecided(absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(context_.mutex) {
    {
      absl::MutexLock lock(&context_.mutex);
      if (error_.ok() && !contribution_.has_value()) {
        error_ = absl::FailedPreconditionError("Contribute was not called");
      }
    }
    HOLDFAST_RETURN_IF_ERROR(part_calls_.Await(
        deadline, [this] { return over() || stage_ != Stage::kSending; },
        [this] { return sender_.Missing(); }));
    return calls_.Await(
        deadline, [this] { return over() || stage_ == Stage::kDecided; },
        [this] { return MissingVerdict(); });
  }

  // Ends the waits for the push, of which the last has returned `status`.
  absl::StatusOr<Cluster::Outcome> End(const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(context_.mutex) {
    GiveUp();
    absl::MutexLock lock(&context_.mutex);
    if (error_.ok()) error_ = status;
    if (!error_.ok()) return error_;
    return *outcome_;
  }

  absl::Status AwaitNext(absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(context_.mutex) {
    {
      absl::MutexLock lock(&context_.mutex);
      if (!error_.ok()) return error_;
      if (next_ == nullptr || pull_ == nullptr) return absl::OkStatus();
    }
    return pull_->Await(deadline);
  }

  // From now on nothing is sent or delivered, and the memory belongs to the
  // caller.
  void GiveUp() {
    part_calls_.Cancel();
    calls_.Cancel();
    pull_.reset();
    gradients_.AwaitReturn();
  }

  const PushFacts push_;
  Context& context_;
  Gradients gradients_;
  // part_calls_ sends the parts; calls_ makes the calls of the exchange and of
  // the follow-up.
  CallGroup part_calls_;
  CallGroup calls_;
  PartSender sender_;
  const std::unique_ptr<FollowUp> follow_up_;
  // Set if push, follow-up and pull fit in one call.
  std::optional<PushExchange> exchange_;

  // Set once, by Contribute, and read without the lock afterwards.
  std::optional<Contribution> contribution_;
  Stage stage_ ABSL_GUARDED_BY(context_.mutex) = Stage::kSending;
  absl::Status error_ ABSL_GUARDED_BY(context_.mutex);
  std::optional<Cluster::Outcome> outcome_ ABSL_GUARDED_BY(context_.mutex);
  // The object into which values are pulled or have yet to be pulled; null if
  // there is none.
  Parameters* next_ ABSL_GUARDED_BY(context_.mutex) = nullptr;
  // Set once by answers; used only by the user's thread once the push is
  // decided.
  std::unique_ptr<Cluster::Pull> pull_;
  // Used only by the waiting thread.
  CallGroup::NextReport sent_report_;
  CallGroup::NextReport verdict_report_;
};

// Stands for a push that could not be started. Its functions return the reason.
class FailedPush final : public Cluster::Push {
 public:
  explicit FailedPush(absl::Status error) : error_(std::move(error)) {}
  bool done() const override { return true; }
  PushSequence sequence() const override { return PushSequence(0); }
  absl::Span<float> Memory(size_t) override { return {}; }
  absl::Status Add(size_t, absl::Span<const float>) override { return error_; }
  absl::Status AddRows(size_t, absl::Span<const uint64_t>,
                       absl::Span<const float>) override {
    return error_;
  }
  bool WaitUntilHeld(absl::Time) override { return true; }
  absl::Status AwaitHeld(absl::Time) override { return error_; }
  absl::Status Contribute(const Contribution&, Parameters*) override {
    return error_;
  }
  bool WaitUntilDone(absl::Time) override { return true; }
  std::unique_ptr<Cluster::Push> StartAgain() override {
    return std::make_unique<FailedPush>(error_);
  }
  absl::StatusOr<Cluster::Outcome> Await(absl::Time) override { return error_; }
  absl::StatusOr<Cluster::Outcome> AwaitVerdict(
      absl::Time, std::unique_ptr<Cluster::Pull>* rest) override {
    rest->reset();
    return error_;
  }

 private:
  const absl::Status error_;
};

std::unique_ptr<Cluster::Push> Fail(absl::Status error) {
  return std::make_unique<FailedPush>(std::move(error));
}

std::unique_ptr<Cluster::Push> Start(PushFacts push) {
  GenerationState& generation = *push.generation;
  PushSequence settled;
  {
    absl::MutexLock lock(&generation.context->mutex);
    settled = generation.sequences.acked_through();
  }
  generation.encoder.Forget(settled);
  auto handle = std::make_unique<PushHandle>(std::move(push));
  handle->Start();
  return handle;
}

// The push keeps its number, because its ticket belongs to that, and because a
// shard has room of its own for only one push of each seat. The shards drop the
// parts that they hold once they hear of more parts [H8].
std::unique_ptr<Cluster::Push> PushHandle::StartAgain() {
  if (contribution_.has_value() || sender_.sends_all()) {
    return Fail(absl::FailedPreconditionError(
        "a push cannot be started again after AwaitHeld or Contribute"));
  }
  GiveUp();
  GenerationState& generation = *push_.generation;
  // None of the gradient counts.
  generation.encoder.Settle(push_.sequence, false);
  PushFacts again = push_;
  again.announced = sender_.announced();
  if (std::count(again.announced.begin(), again.announced.end(), size_t{0}) ==
      static_cast<int64_t>(again.announced.size())) {
    again.announced.clear();
  }
  {
    absl::MutexLock lock(&context_.mutex);
    generation.sequences.Hold(
        push_.sequence,
        push_.asynchronous() ? std::nullopt : std::optional(push_.steps[0]));
  }
  return client::Start(std::move(again));
}

}  // namespace

std::unique_ptr<Cluster::Push> StartPush(
    const absl::StatusOr<std::shared_ptr<GenerationState>>& ready,
    GlobalStep step) {
  if (!ready.ok()) return Fail(ready.status());
  GenerationState& generation = **ready;
  if (generation.placement.asynchronous()) {
    return Fail(absl::FailedPreconditionError(
        "the job is asynchronous: a push needs a ticket"));
  }
  PushSequence sequence;
  {
    absl::MutexLock lock(&generation.context->mutex);
    sequence = generation.sequences.Take(step);
  }
  return Start({*ready, sequence, std::nullopt,
                std::vector<GlobalStep>(generation.context->num_ps(), step)});
}

std::unique_ptr<Cluster::Push> StartPush(
    const absl::StatusOr<std::shared_ptr<GenerationState>>& ready,
    const Ticket& ticket, const Parameters& at) {
  if (!ready.ok()) return Fail(ready.status());
  GenerationState& generation = **ready;
  const bool asynchronous = generation.placement.asynchronous();
  std::vector<GlobalStep> steps(generation.context->num_ps(), at.version);
  if (asynchronous) {
    if (at.versions.size() != steps.size()) {
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("the parameters are from ", at.versions.size(),
                       " ps, not ", steps.size(), ": pull them first")));
    }
    steps = at.versions;
  }
  {
    absl::MutexLock lock(&generation.context->mutex);
    generation.sequences.Hold(ticket.sequence, asynchronous
                                                   ? std::nullopt
                                                   : std::optional(at.version));
  }
  return Start({*ready, ticket.sequence, ticket, std::move(steps)});
}

}  // namespace holdfast::client
