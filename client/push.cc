#include "client/push.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/apply.h"
#include "client/loan.h"
#include "client/offer.h"
#include "client/pull.h"
#include "client/tensors.h"
#include "common/rpc/backoff.h"

namespace holdfast::client {
namespace {

// Parts on their way to one ps at a time. More hide a longer round trip, but
// the later ones take their share of the connection from those that are wanted
// first.
constexpr int kMaxPartsInFlight = 4;

class PushHandle : public Cluster::Push {
 public:
  // The sequence must be held, and is released at the end. `ticket`: null for a
  // push without. `steps`: by ps, as PushRequest.step.
  PushHandle(std::shared_ptr<GenerationState> generation, PushSequence sequence,
             const Ticket* ticket, std::vector<GlobalStep> steps)
      : generation_(std::move(generation)),
        mutex_(generation_->context->mutex),
        layout_(generation_->placement.layout),
        plan_(generation_->placement.push),
        folds_(generation_->placement.push.parts.size() == 1 &&
               generation_->placement.push.parts[0].size() == 1 &&
               generation_->placement.pull.parts[0].size() == 1),
        sequence_(sequence),
        has_ticket_(ticket != nullptr),
        steps_(std::move(steps)),
        calls_(generation_->context, generation_->sender),
        gradients_(layout_.variables().size()),
        encoded_(layout_.variables().size()),
        handed_in_(layout_.variables().size(), false),
        shards_(layout_.num_ps()) {
    if (generation_->placement.asynchronous()) {
      applier_.emplace(generation_.get(), &calls_, *ticket);
    }
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      shards_[ps].unacknowledged = plan_.parts[ps].size();
      for (const Plan::Part& part : plan_.parts[ps]) {
        shards_[ps].missing.push_back(part.size());
      }
    }
    held_ = folds_;
  }

  ~PushHandle() override {
    TakeBack();
    absl::MutexLock lock(&mutex_);
    generation_->sequences.Release(sequence_);
  }

  // Sends the parts that need no gradient.
  void Start() {
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) SendReady(ps);
  }

  PushSequence sequence() const override { return sequence_; }

  absl::Status Add(size_t variable, absl::Span<const float> gradient) override {
    if (absl::Status status = CheckFits(variable, gradient); !status.ok()) {
      return status;
    }
    {
      absl::MutexLock lock(&mutex_);
      if (handed_in_[variable]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the gradient of variable \"", layout_.variables()[variable].name,
            "\" was handed in before"));
      }
      if (absl::Status over = generation_->WhyOver(); !over.ok()) return over;
      if (!error_.ok()) return error_;
      handed_in_[variable] = true;
    }
    if (generation_->encoder.Encodes(variable)) {
      encoded_[variable] =
          generation_->encoder.Encode(sequence_, variable, gradient);
    }
    {
      absl::MutexLock lock(&mutex_);
      ++num_handed_in_;
      gradients_[variable] = gradient;
      for (const Plan::Place& place : plan_.places[variable]) {
        Shard& shard = shards_[place.ps];
        if (--shard.missing[place.part] == 0) {
          shard.ready.push_back(place.part);
        }
      }
    }
    for (const Plan::Place& place : plan_.places[variable]) {
      SendReady(place.ps);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<proto::Verdict> Await(absl::Time deadline) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!decided()) error_ = CheckMayAwait();
      held_ = false;
    }
    Start();
    const absl::Status status = calls_.Await(
        deadline, [this] { return decided() || acknowledged(); },
        [this] { return Missing(); });
    TakeBack();
    absl::MutexLock lock(&mutex_);
    if (error_.ok()) error_ = status;
    if (!error_.ok()) return error_;
    return verdict_;
  }

  absl::Status Contribute(const Contribution& contribution,
                          Parameters* next) override {
    if (applier_.has_value()) {
      return absl::FailedPreconditionError(
          "the job is asynchronous: a push is applied, not contributed");
    }
    {
      absl::MutexLock lock(&mutex_);
      if (contribution_.has_value()) {
        return absl::FailedPreconditionError("Contribute was called before");
      }
      if (absl::Status over = generation_->WhyOver(); !over.ok()) return over;
      if (!error_.ok()) return error_;
      if (contribution.examples > 0) {
        if (absl::Status status = CheckHandedIn(); !status.ok()) return status;
      }
      contribution_ = contribution;
      contribution_->step = steps_.front();
      contribution_->sequence = sequence_;
      next_ = next;
      // Nothing of it counts, whatever the verdict.
      if (empty()) generation_->encoder.Settle(sequence_, false);
    }
    GoOnWhenReady();
    return absl::OkStatus();
  }

  absl::StatusOr<Cluster::Outcome> AwaitOutcome(absl::Time deadline) override {
    {
      absl::MutexLock lock(&mutex_);
      if (error_.ok() && !contribution_.has_value()) {
        error_ = absl::FailedPreconditionError("Contribute was not called");
      }
    }
    absl::Status status = calls_.Await(
        deadline,
        [this] {
          return !error_.ok() || outcome_.has_value() || offer_ != nullptr;
        },
        [this] { return Missing(); });
    TakeBack();
    if (status.ok()) status = AwaitOffer(deadline);
    if (status.ok() && !fenced()) {
      status = AwaitNext(contribution_->step.next(), deadline);
    }
    // `next` is the caller's again, whatever comes.
    pull_.reset();
    std::unique_ptr<Cluster::Offer> offer;  // goes after the lock
    absl::MutexLock lock(&mutex_);
    offer.swap(offer_);
    if (error_.ok()) error_ = status;
    if (!error_.ok()) return error_;
    return *outcome_;
  }

  absl::Status Apply(const Application& application,
                     Parameters* next) override {
    if (!applier_.has_value()) {
      return absl::FailedPreconditionError(
          "the job is synchronous: a push is contributed, not applied");
    }
    if (application.examples > 0 && !std::isfinite(application.loss)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the loss of push ", sequence_.value(), " is ",
                       application.loss, ": apply it with 0 examples"));
    }
    {
      absl::MutexLock lock(&mutex_);
      if (application_.has_value()) {
        return absl::FailedPreconditionError("Apply was called before");
      }
      if (absl::Status over = generation_->WhyOver(); !over.ok()) return over;
      if (!error_.ok()) return error_;
      if (application.examples > 0) {
        if (absl::Status status = CheckHandedIn(); !status.ok()) return status;
      }
      application_ = application;
      next_ = next;
      if (empty()) generation_->encoder.Settle(sequence_, false);
    }
    GoOnWhenReady();
    return absl::OkStatus();
  }

  absl::StatusOr<Applied> AwaitApplied(absl::Time deadline) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!decided() && !application_.has_value()) {
        error_ = absl::FailedPreconditionError("Apply was not called");
      }
    }
    const absl::Status status = calls_.Await(
        deadline, [this] { return decided() || applied(); },
        [this] { return Missing(); });
    TakeBack();
    absl::StatusOr<Applied> outcome = Applied();
    {
      absl::MutexLock lock(&mutex_);
      if (!applied()) {
        if (error_.ok()) error_ = status;
        if (!error_.ok()) return error_;
        return Applied{verdict_};
      }
      outcome = applier_->outcome();
    }
    if (!outcome.ok() || outcome->verdict != proto::ACCEPTED) return outcome;
    if (absl::Status read = AwaitNext(GlobalStep(0), deadline); !read.ok()) {
      return read;
    }
    return outcome;
  }

 private:
  // What is between this push and one ps.
  struct Shard {
    // By part: stretches whose variable has not been handed in.
    std::vector<size_t> missing;
    // Parts that may leave.
    std::deque<uint32_t> ready;
    int in_flight = 0;
    size_t unacknowledged = 0;
    // Why the ps has kept nothing, as last heard. Empty: it has room.
    std::string refusal;
    // Nothing is sent until a pause after a refusal is over.
    bool pausing = false;
    Backoff backoff;
  };

  absl::Status CheckFits(size_t variable,
                         absl::Span<const float> gradient) const {
    if (variable >= layout_.variables().size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no variable ", variable, ", only ",
                       layout_.variables().size()));
    }
    const Layout::Variable& declared = layout_.variables()[variable];
    if (!declared.trainable) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable \"", declared.name, "\" is not trainable"));
    }
    if (gradient.size() != declared.size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable \"", declared.name, "\": gradient has ", gradient.size(),
          " elements, the variable ", declared.size));
    }
    return absl::OkStatus();
  }

  absl::Status CheckHandedIn() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    const size_t missing = layout_.num_trainable() - num_handed_in_;
    if (missing == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the gradients of ", missing, " of ", layout_.num_trainable(),
        " trainable variables were not handed in"));
  }

  absl::Status CheckMayAwait() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (applier_.has_value()) {
      return absl::FailedPreconditionError(
          "the job is asynchronous: a push is applied, and AwaitApplied waits");
    }
    return CheckHandedIn();
  }

  bool decided() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !error_.ok() || verdict_ != proto::VERDICT_UNSPECIFIED;
  }

  bool acknowledged() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    for (const Shard& shard : shards_) {
      if (shard.unacknowledged > 0) return false;
    }
    return true;
  }

  bool applied() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return applier_.has_value() && applier_->over();
  }

  // A worker that was shut out need not wait for values, which may not come.
  bool fenced() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return outcome_.has_value() && outcome_->verdict == proto::FENCED;
  }

  // No part is needed, whatever was handed in.
  bool empty() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (contribution_.has_value()) return contribution_->examples == 0;
    return application_.has_value() && application_->examples == 0;
  }

  // From here on nothing is sent or told, and the caller's memory is its own.
  void TakeBack() ABSL_LOCKS_EXCLUDED(mutex_) {
    calls_.Cancel();
    loan_.AwaitReturn();
  }

  // What the user's thread does of Contribute when the exchange has not.
  absl::Status AwaitOffer(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    Cluster::Offer* offer = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      if (!error_.ok()) return error_;
      if (outcome_.has_value()) return absl::OkStatus();
      offer = offer_.get();
    }
    const absl::StatusOr<Cluster::Outcome> outcome = offer->Await(deadline);
    if (!outcome.ok()) return outcome.status();
    absl::MutexLock lock(&mutex_);
    outcome_ = *outcome;
    return absl::OkStatus();
  }
  // The same of the pull behind Contribute or Apply.
  absl::Status AwaitNext(GlobalStep min_version, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (next_ == nullptr || next_is_here_) return absl::OkStatus();
    }
    if (pull_ == nullptr) pull_ = StartPull(generation_, min_version, next_);
    absl::Status status = pull_->Await(deadline);
    if (!status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    next_is_here_ = true;
    return absl::OkStatus();
  }

  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (exchanging_) {
      const std::string& refusal = shards_.front().refusal;
      if (!refusal.empty()) return refusal;
      const std::string& step = generation_->context->step_waits_for;
      return absl::StrCat("the verdict on push ", sequence_.value(), " by ",
                          generation_->context->ps_names[0],
                          step.empty() ? "" : "; ", step);
    }
    if (going_on_ && applier_.has_value()) return applier_->Missing();
    std::vector<std::string> names;
    std::string refusals;
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      if (shards_[ps].unacknowledged == 0) continue;
      names.push_back(generation_->context->ps_names[ps]);
      if (!shards_[ps].refusal.empty()) {
        absl::StrAppend(&refusals, "; ", shards_[ps].refusal);
      }
    }
    return absl::StrCat("the acknowledgment of push ", sequence_.value(),
                        " by ", absl::StrJoin(names, ", "), refusals);
  }

  // Sends what may leave to one ps. From the user's thread and from answers.
  void SendReady(uint32_t ps) ABSL_LOCKS_EXCLUDED(mutex_) {
    for (;;) {
      WithTensors<proto::PushRequest> push;
      proto::PushRequest& request = push.message;
      {
        absl::MutexLock lock(&mutex_);
        Shard& shard = shards_[ps];
        const int at_a_time = shard.refusal.empty() ? kMaxPartsInFlight : 1;
        if (held_ || decided() || empty() || shard.ready.empty() ||
            shard.pausing || shard.in_flight >= at_a_time) {
          return;
        }
        request.set_part(shard.ready.front());
        shard.ready.pop_front();
        ++shard.in_flight;
        request.set_acked_through(
            generation_->sequences.acked_through().value());
      }
      request.set_sequence(sequence_.value());
      request.set_step(steps_[ps].value());
      request.set_num_parts(plan_.parts[ps].size());
      const uint32_t part = request.part();
      push.tensors = PiecesOf(layout_, plan_.parts[ps][part], gradients_,
                              encoded_, loan_.owner());
      calls_.Start(rpc::kPush, ps, std::move(push),
                   [this, ps,
                    part](const absl::StatusOr<proto::PushResponse>& response) {
                     OnAnswer(ps, part, response);
                     return Next::kDone;
                   });
    }
  }

  void OnAnswer(uint32_t ps, uint32_t part,
                const absl::StatusOr<proto::PushResponse>& response)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    Backoff* pause = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      Shard& shard = shards_[ps];
      --shard.in_flight;
      if (empty()) return;
      if (absl::IsResourceExhausted(response.status())) {
        shard.ready.push_front(part);
        shard.refusal = std::string(response.status().message());
        if (!shard.pausing) pause = &shard.backoff;
        shard.pausing = true;
      } else if (!response.ok()) {
        if (error_.ok()) error_ = response.status();
      } else if (IsOutcome(response->verdict())) {
        verdict_ = response->verdict();
        generation_->encoder.Settle(sequence_, verdict_ == proto::ACCEPTED);
        // With a ticket the coordinator has to hear of it first.
        if (!has_ticket_) generation_->sequences.Settle(sequence_);
      } else {
        --shard.unacknowledged;
        if (response->receipt() != 0) {
          generation_->sequences.KeepReceipt(sequence_, ps,
                                             response->receipt());
        }
        shard.refusal.clear();
        shard.backoff.Reset();
      }
    }
    if (pause != nullptr) {
      calls_.After(pause, [this, ps] {
        {
          absl::MutexLock lock(&mutex_);
          shards_[ps].pausing = false;
        }
        SendReady(ps);
      });
    }
    SendReady(ps);
    GoOnWhenReady();
  }

  // Whether a shard's verdict on a part is that on the push. An asynchronous
  // push counts when all shards have applied it, not when this one has.
  bool IsOutcome(proto::Verdict verdict) const {
    return verdict != proto::VERDICT_UNSPECIFIED &&
           !(applier_.has_value() && verdict == proto::ACCEPTED);
  }

  // Contributes or applies. From the user's thread and from answers.
  void GoOnWhenReady() ABSL_LOCKS_EXCLUDED(mutex_) {
    bool exchange;
    {
      absl::MutexLock lock(&mutex_);
      if (going_on_ || !error_.ok()) return;
      if (!contribution_.has_value() && !application_.has_value()) return;
      // A push that a shard has found too late is offered all the same: the
      // verdict is the coordinator's to tell, and to count.
      const bool decided = verdict_ != proto::VERDICT_UNSPECIFIED;
      if (applier_.has_value() && decided) return;
      exchange = held_;
      if (!exchange && !decided && !empty() && !acknowledged()) return;
      going_on_ = true;
      exchanging_ = exchange;
    }
    if (exchange) {
      Exchange();
    } else {
      AskSeparately();
    }
  }

  void AskSeparately() ABSL_LOCKS_EXCLUDED(mutex_) {
    if (applier_.has_value()) return applier_->Start(*application_);
    std::unique_ptr<Cluster::Offer> offer =
        StartContribute(generation_, *contribution_);
    std::unique_ptr<Cluster::Pull> pull;
    if (next_ != nullptr) {
      pull = StartPull(generation_, contribution_->step.next(), next_);
    }
    absl::MutexLock lock(&mutex_);
    offer_ = std::move(offer);
    pull_ = std::move(pull);
  }

  // Does all in one call.
  void Exchange() ABSL_LOCKS_EXCLUDED(mutex_) {
    WithTensors<proto::PushPullRequest> exchange;
    proto::PushPullRequest& request = exchange.message;
    bool push;
    {
      absl::MutexLock lock(&mutex_);
      if (!error_.ok()) return;
      push = !empty();
      request.set_acked_through(generation_->sequences.acked_through().value());
    }
    request.set_sequence(sequence_.value());
    request.set_step(steps_.front().value());
    request.set_wait_ms(
        absl::ToInt64Milliseconds(generation_->context->timing.park));
    if (contribution_.has_value()) {
      auto& contribution = *request.mutable_contribution();
      contribution.set_seat(contribution_->seat);
      contribution.set_examples(contribution_->examples);
      contribution.set_clip_factor(contribution_->clip_factor);
      contribution.set_loss(contribution_->loss);
      contribution.set_not_finite(contribution_->not_finite);
    } else {
      auto& application = *request.mutable_application();
      application.mutable_scalars()->Assign(applier_->scalars().begin(),
                                            applier_->scalars().end());
      application.set_examples(application_->examples);
      application.set_not_finite(application_->not_finite);
      application.set_clip_factor(push ? application_->clip_factor : 0);
      application.set_ticket_receipt(applier_->ticket_receipt());
    }
    if (next_ != nullptr) {
      AddRanges(layout_, NextPart(), Reading::kAsDeclared,
                request.mutable_ranges());
    }
    if (push) {
      exchange.tensors = PiecesOf(layout_, plan_.parts[0][0], gradients_,
                                  encoded_, loan_.owner());
    }
    calls_.Start(
        rpc::kPushPull, 0, std::move(exchange),
        [this](const absl::StatusOr<WithTensors<proto::PushPullResponse>>&
                   answer) {
          OnExchanged(answer);
          return Next::kDone;
        });
  }

  const Plan::Part& NextPart() const {
    return generation_->placement.pull.parts[0][0];
  }

  void OnExchanged(
      const absl::StatusOr<WithTensors<proto::PushPullResponse>>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    if (absl::IsResourceExhausted(answer.status())) {
      {
        absl::MutexLock lock(&mutex_);
        shards_.front().refusal = std::string(answer.status().message());
      }
      calls_.After(&shards_.front().backoff, [this] { Exchange(); });
      return;
    }
    if (!answer.ok()) {
      absl::MutexLock lock(&mutex_);
      if (error_.ok()) error_ = answer.status();
      return;
    }
    const proto::PushPullResponse& response = answer->message;
    if (response.verdict() == proto::VERDICT_UNSPECIFIED) {
      {
        absl::MutexLock lock(&mutex_);
        exchanging_ = false;
        shards_.front().unacknowledged = 0;
      }
      return AskSeparately();
    }
    if (absl::Status status = TakeNext(*answer); !status.ok()) {
      absl::MutexLock lock(&mutex_);
      if (error_.ok()) error_ = status;
      return;
    }
    if (applier_.has_value()) {
      proto::ApplyResponse applied;
      applied.set_verdict(response.verdict());
      applied.set_staleness(response.staleness());
      applied.set_receipt(response.receipt());
      return applier_->Take(*application_, applied);
    }
    absl::MutexLock lock(&mutex_);
    outcome_ = {response.verdict(), GlobalStep(response.global_step())};
    generation_->sequences.Settle(sequence_);
    generation_->encoder.Settle(sequence_,
                                response.verdict() == proto::ACCEPTED);
    generation_->context->step_waits_for.clear();
  }

  // The values, where they have come.
  absl::Status TakeNext(const WithTensors<proto::PushPullResponse>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    if (next_ == nullptr || answer.tensors.empty()) return absl::OkStatus();
    Resize(layout_, &next_->values);
    if (absl::Status status =
            TakeValues(layout_, NextPart(), Reading::kAsDeclared,
                       answer.tensors, absl::MakeSpan(next_->values));
        !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(generation_->context->ps_names[0], ": ",
                                       status.message()));
    }
    next_->version = GlobalStep(answer.message.version());
    next_->versions = {next_->version};
    next_->loss_scale = LossScaleOf(answer.message);
    absl::MutexLock lock(&mutex_);
    generation_->sequences.Reached(next_->version);
    next_is_here_ = true;
    return absl::OkStatus();
  }

  const std::shared_ptr<GenerationState> generation_;
  absl::Mutex& mutex_;
  const Layout& layout_;
  const Plan& plan_;
  // Push, Contribute or Apply, and pull fit in one call.
  const bool folds_;
  const PushSequence sequence_;
  const bool has_ticket_;
  const std::vector<GlobalStep> steps_;
  CallGroup calls_;
  // Asynchronous jobs only.
  std::optional<Applier> applier_;

  // Of the gradients' memory.
  Loan loan_;
  // By variable. An element is written before the parts that need it are ready,
  // and read without the lock.
  std::vector<absl::Span<const float>> gradients_;
  // As they are sent; of those that are sent as they are, nothing.
  std::vector<GradientEncoder::Encoded> encoded_;
  std::vector<bool> handed_in_ ABSL_GUARDED_BY(mutex_);
  size_t num_handed_in_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Shard> shards_ ABSL_GUARDED_BY(mutex_);
  proto::Verdict verdict_ ABSL_GUARDED_BY(mutex_) = proto::VERDICT_UNSPECIFIED;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  // The only part waits until it is known what leaves with it.
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  // What follows the push. Set once, before going_on_; read without the lock
  // after that.
  std::optional<Contribution> contribution_;
  std::optional<Application> application_;
  Parameters* next_ = nullptr;
  bool going_on_ ABSL_GUARDED_BY(mutex_) = false;
  bool exchanging_ ABSL_GUARDED_BY(mutex_) = false;
  // Of a contribution that was made separately.
  std::unique_ptr<Cluster::Offer> offer_ ABSL_GUARDED_BY(mutex_);
  std::optional<Cluster::Outcome> outcome_ ABSL_GUARDED_BY(mutex_);
  bool next_is_here_ ABSL_GUARDED_BY(mutex_) = false;
  // Used by the user's thread once an answer, if any, has set it.
  std::unique_ptr<Cluster::Pull> pull_;
};

// A push that could not begin.
class FailedPush : public Cluster::Push {
 public:
  explicit FailedPush(absl::Status error) : error_(std::move(error)) {}
  PushSequence sequence() const override { return PushSequence(0); }
  absl::Status Add(size_t, absl::Span<const float>) override { return error_; }
  absl::StatusOr<proto::Verdict> Await(absl::Time) override { return error_; }
  absl::Status Contribute(const Contribution&, Parameters*) override {
    return error_;
  }
  absl::StatusOr<Cluster::Outcome> AwaitOutcome(absl::Time) override {
    return error_;
  }
  absl::Status Apply(const Application&, Parameters*) override {
    return error_;
  }
  absl::StatusOr<Applied> AwaitApplied(absl::Time) override { return error_; }

 private:
  const absl::Status error_;
};

std::unique_ptr<Cluster::Push> Fail(absl::Status error) {
  return std::make_unique<FailedPush>(std::move(error));
}

std::unique_ptr<Cluster::Push> Start(GenerationState* generation,
                                     std::unique_ptr<PushHandle> push) {
  PushSequence settled;
  {
    absl::MutexLock lock(&generation->context->mutex);
    settled = generation->sequences.acked_through();
  }
  generation->encoder.Forget(settled);
  push->Start();
  return push;
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
  return Start(&generation, std::make_unique<PushHandle>(
                                *ready, sequence, nullptr,
                                std::vector<GlobalStep>(
                                    generation.context->num_ps(), step)));
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
          absl::StrCat("the parameters are of ", at.versions.size(),
                       " ps, not of ", steps.size(), ": pull them first")));
    }
    steps = at.versions;
  }
  {
    absl::MutexLock lock(&generation.context->mutex);
    generation.sequences.Hold(ticket.sequence, asynchronous
                                                   ? std::nullopt
                                                   : std::optional(at.version));
  }
  return Start(&generation,
               std::make_unique<PushHandle>(*ready, ticket.sequence, &ticket,
                                            std::move(steps)));
}

}  // namespace holdfast::client
