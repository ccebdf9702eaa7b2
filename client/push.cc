#include "client/push.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/tensors.h"

namespace holdfast::client {
namespace {

// Parts on their way to one ps at a time. More hide a longer round trip; each
// costs a copy of a part until it is acknowledged.
constexpr int kMaxPartsInFlight = 8;

class PushHandle : public Cluster::Push {
 public:
  PushHandle(Core* core, const Placement* placement, GlobalStep step,
             PushSequence sequence)
      : core_(core),
        mutex_(core->context->mutex),
        layout_(placement->layout),
        plan_(placement->push),
        step_(step),
        sequence_(sequence),
        calls_(core->context),
        gradients_(layout_.variables().size()),
        handed_in_(layout_.variables().size(), false),
        shards_(layout_.num_ps()) {
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
    core_->sequences.Release(sequence_);
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
      if (!core_->context->ended().ok()) return core_->context->ended();
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
      if (!decided() && num_handed_in_ < layout_.num_trainable()) {
        error_ = absl::FailedPreconditionError(absl::StrCat(
            "the gradients of ", layout_.num_trainable() - num_handed_in_,
            " of ", layout_.num_trainable(),
            " trainable variables were not handed in"));
      }
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

 private:
  // What is between this push and one ps.
  struct Shard {
    // By part: stretches whose variable has not been handed in.
    std::vector<size_t> missing;
    // Parts that may leave.
    std::deque<uint32_t> ready;
    int in_flight = 0;
    size_t unacknowledged = 0;
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

  bool decided() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !error_.ok() || verdict_ != proto::VERDICT_UNSPECIFIED;
  }

  bool acknowledged() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    for (const Shard& shard : shards_) {
      if (shard.unacknowledged > 0) return false;
    }
    return true;
  }

  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> names;
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      if (shards_[ps].unacknowledged > 0) {
        names.push_back(core_->wire->PsName(ps));
      }
    }
    return absl::StrCat("the acknowledgment of push ", sequence_.value(),
                        " by ", absl::StrJoin(names, ", "));
  }

  // Sends what may leave to one ps. From the user's thread and from answers.
  void SendReady(uint32_t ps) ABSL_LOCKS_EXCLUDED(mutex_) {
    for (;;) {
      proto::PushRequest request;
      {
        absl::MutexLock lock(&mutex_);
        Shard& shard = shards_[ps];
        if (decided() || shard.ready.empty() ||
            shard.in_flight == kMaxPartsInFlight) {
          return;
        }
        request.set_part(shard.ready.front());
        shard.ready.pop_front();
        ++shard.in_flight;
        request.set_acked_through(core_->sequences.acked_through().value());
      }
      request.set_sequence(sequence_.value());
      request.set_step(step_.value());
      request.set_num_parts(plan_.parts[ps].size());
      AddGradients(layout_, plan_.parts[ps][request.part()], gradients_,
                   &request);
      core_->wire->Push(
          calls_, ps, std::move(request),
          [this, ps](absl::StatusOr<proto::PushResponse> response) {
            OnAnswer(ps, response);
            return Next::kDone;
          });
    }
  }

  void OnAnswer(uint32_t ps,
                const absl::StatusOr<proto::PushResponse>& response)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      --shards_[ps].in_flight;
      if (!response.ok()) {
        if (error_.ok()) error_ = response.status();
      } else if (response->verdict() != proto::VERDICT_UNSPECIFIED) {
        verdict_ = response->verdict();
        core_->sequences.Settle(sequence_);
      } else {
        --shards_[ps].unacknowledged;
      }
    }
    SendReady(ps);
  }

  Core* const core_;
  absl::Mutex& mutex_;
  const Layout& layout_;
  const Plan& plan_;
  const GlobalStep step_;
  const PushSequence sequence_;
  CallGroup calls_;

  // By variable. An element is written before the parts that need it are ready,
  // and read without the lock.
  std::vector<absl::Span<const float>> gradients_;
  std::vector<bool> handed_in_ ABSL_GUARDED_BY(mutex_);
  size_t num_handed_in_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Shard> shards_ ABSL_GUARDED_BY(mutex_);
  proto::Verdict verdict_ ABSL_GUARDED_BY(mutex_) = proto::VERDICT_UNSPECIFIED;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

// A push that could not begin.
class FailedPush : public Cluster::Push {
 public:
  explicit FailedPush(absl::Status error) : error_(std::move(error)) {}
  PushSequence sequence() const override { return PushSequence(0); }
  absl::Status Add(size_t, absl::Span<const float>) override { return error_; }
  absl::StatusOr<proto::Verdict> Await(absl::Time) override { return error_; }

 private:
  const absl::Status error_;
};

}  // namespace

std::unique_ptr<Cluster::Push> StartPush(Core* core, GlobalStep step) {
  absl::Status status = core->CheckMember();
  const absl::StatusOr<const Placement*> placement = core->Ready();
  if (status.ok()) status = placement.status();
  if (!status.ok()) return std::make_unique<FailedPush>(status);
  PushSequence sequence;
  {
    absl::MutexLock lock(&core->context->mutex);
    sequence = core->sequences.Take(step);
  }
  auto push = std::make_unique<PushHandle>(core, *placement, step, sequence);
  push->Start();
  return push;
}

}  // namespace holdfast::client
