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
#include "client/tensors.h"
#include "common/rpc/backoff.h"

namespace holdfast::client {
namespace {

// Parts on their way to one ps at a time. More hide a longer round trip; each
// costs a copy of a part until it is acknowledged.
constexpr int kMaxPartsInFlight = 8;

class PushHandle : public Cluster::Push {
 public:
  // The sequence must be held, and is released at the end. `ticket`: null for a
  // push without. `steps`: by ps, as PushRequest.step.
  PushHandle(std::shared_ptr<Generation> generation, PushSequence sequence,
             const Ticket* ticket, std::vector<GlobalStep> steps)
      : generation_(std::move(generation)),
        mutex_(generation_->context->mutex),
        layout_(generation_->placement.layout),
        plan_(generation_->placement.push),
        sequence_(sequence),
        has_ticket_(ticket != nullptr),
        steps_(std::move(steps)),
        calls_(generation_->context, generation_->sender),
        gradients_(layout_.variables().size()),
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
      if (plan_.parts[ps].front().empty()) shards_[ps].ready.push_back(0);
    }
  }

  ~PushHandle() override {
    calls_.Cancel();
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
    }
    const absl::Status status = calls_.Await(
        deadline, [this] { return decided() || acknowledged(); },
        [this] { return Missing(); });
    calls_.Cancel();
    absl::MutexLock lock(&mutex_);
    if (error_.ok()) error_ = status;
    if (!error_.ok()) return error_;
    return verdict_;
  }

  absl::Status Apply(const Application& application) override {
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
    }
    ApplyWhenReady();
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
    calls_.Cancel();
    absl::MutexLock lock(&mutex_);
    if (applied()) return applier_->outcome();
    if (error_.ok()) error_ = status;
    if (!error_.ok()) return error_;
    return Applied{verdict_};
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

  // No part is needed, whatever was handed in.
  bool empty() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return application_.has_value() && application_->examples == 0;
  }

  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (applying_) return applier_->Missing();
    std::vector<std::string> names;
    std::string refusals;
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      if (shards_[ps].unacknowledged == 0) continue;
      names.push_back(generation_->wire->PsName(ps));
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
      proto::PushRequest request;
      {
        absl::MutexLock lock(&mutex_);
        Shard& shard = shards_[ps];
        const int at_a_time = shard.refusal.empty() ? kMaxPartsInFlight : 1;
        if (decided() || empty() || shard.ready.empty() || shard.pausing ||
            shard.in_flight >= at_a_time) {
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
      AddGradients(layout_, plan_.parts[ps][request.part()], gradients_,
                   &request);
      const uint32_t part = request.part();
      generation_->wire->Push(
          calls_, ps, std::move(request),
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
    std::optional<absl::Duration> pause;
    {
      absl::MutexLock lock(&mutex_);
      Shard& shard = shards_[ps];
      --shard.in_flight;
      if (empty()) return;
      if (absl::IsResourceExhausted(response.status())) {
        shard.ready.push_front(part);
        shard.refusal = std::string(response.status().message());
        if (!shard.pausing) pause = shard.backoff.Next();
        shard.pausing = true;
      } else if (!response.ok()) {
        if (error_.ok()) error_ = response.status();
      } else if (IsOutcome(response->verdict())) {
        verdict_ = response->verdict();
        // With a ticket the coordinator has to hear of it first.
        if (!has_ticket_) generation_->sequences.Settle(sequence_);
      } else {
        --shard.unacknowledged;
        shard.refusal.clear();
        shard.backoff.Reset();
      }
    }
    if (pause.has_value()) {
      calls_.After(*pause, [this, ps] {
        {
          absl::MutexLock lock(&mutex_);
          shards_[ps].pausing = false;
        }
        SendReady(ps);
      });
    }
    SendReady(ps);
    ApplyWhenReady();
  }

  // Whether a shard's verdict on a part is that on the push. An asynchronous
  // push counts when all shards have applied it, not when this one has.
  bool IsOutcome(proto::Verdict verdict) const {
    return verdict != proto::VERDICT_UNSPECIFIED &&
           !(applier_.has_value() && verdict == proto::ACCEPTED);
  }

  // From the user's thread and from answers.
  void ApplyWhenReady() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (!application_.has_value() || applying_ || decided()) return;
      if (!empty() && !acknowledged()) return;
      applying_ = true;
    }
    applier_->Start(*application_);
  }

  const std::shared_ptr<Generation> generation_;
  absl::Mutex& mutex_;
  const Layout& layout_;
  const Plan& plan_;
  const PushSequence sequence_;
  const bool has_ticket_;
  const std::vector<GlobalStep> steps_;
  CallGroup calls_;
  // Asynchronous jobs only.
  std::optional<Applier> applier_;

  // By variable. An element is written before the parts that need it are ready,
  // and read without the lock.
  std::vector<absl::Span<const float>> gradients_;
  std::vector<bool> handed_in_ ABSL_GUARDED_BY(mutex_);
  size_t num_handed_in_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Shard> shards_ ABSL_GUARDED_BY(mutex_);
  proto::Verdict verdict_ ABSL_GUARDED_BY(mutex_) = proto::VERDICT_UNSPECIFIED;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  // Set once.
  std::optional<Application> application_ ABSL_GUARDED_BY(mutex_);
  bool applying_ ABSL_GUARDED_BY(mutex_) = false;
};

// A push that could not begin.
class FailedPush : public Cluster::Push {
 public:
  explicit FailedPush(absl::Status error) : error_(std::move(error)) {}
  PushSequence sequence() const override { return PushSequence(0); }
  absl::Status Add(size_t, absl::Span<const float>) override { return error_; }
  absl::StatusOr<proto::Verdict> Await(absl::Time) override { return error_; }
  absl::Status Apply(const Application&) override { return error_; }
  absl::StatusOr<Applied> AwaitApplied(absl::Time) override { return error_; }

 private:
  const absl::Status error_;
};

std::unique_ptr<Cluster::Push> Fail(absl::Status error) {
  return std::make_unique<FailedPush>(std::move(error));
}

std::unique_ptr<Cluster::Push> Start(std::unique_ptr<PushHandle> push) {
  push->Start();
  return push;
}

}  // namespace

std::unique_ptr<Cluster::Push> StartPush(const Core& core, GlobalStep step) {
  const absl::StatusOr<std::shared_ptr<Generation>> ready = core.ReadyToWork();
  if (!ready.ok()) return Fail(ready.status());
  Generation& generation = **ready;
  if (generation.placement.asynchronous()) {
    return Fail(absl::FailedPreconditionError(
        "the job is asynchronous: a push needs a ticket"));
  }
  PushSequence sequence;
  {
    absl::MutexLock lock(&generation.context->mutex);
    sequence = generation.sequences.Take(step);
  }
  return Start(std::make_unique<PushHandle>(
      *ready, sequence, nullptr,
      std::vector<GlobalStep>(generation.wire->num_ps(), step)));
}

std::unique_ptr<Cluster::Push> StartPush(const Core& core, const Ticket& ticket,
                                         const Parameters& at) {
  const absl::StatusOr<std::shared_ptr<Generation>> ready = core.ReadyToWork();
  if (!ready.ok()) return Fail(ready.status());
  Generation& generation = **ready;
  const bool asynchronous = generation.placement.asynchronous();
  std::vector<GlobalStep> steps(generation.wire->num_ps(), at.version);
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
  return Start(std::make_unique<PushHandle>(*ready, ticket.sequence, &ticket,
                                            std::move(steps)));
}

}  // namespace holdfast::client
