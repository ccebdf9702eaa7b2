// SPDX-License-Identifier: Apache-2.0
#include "client/pin.h"

#include <algorithm>
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
#include "client/pull.h"
#include "common/base/status_macros.h"

namespace holdfast::client {
namespace {

// The limit of PinRequest.hold_ms in proto/shard.proto.
constexpr absl::Duration kMaxHold = absl::Hours(1);

// The pins on all shards.
class PinHandle : public Cluster::Pin {
 public:
  PinHandle(std::shared_ptr<GenerationState> generation, absl::Duration hold)
      : generation_(std::move(generation)),
        mutex_(generation_->context->mutex),
        asynchronous_(generation_->placement.asynchronous()),
        hold_(hold),
        calls_(generation_->context, generation_->sender),
        shards_(generation_->context->num_ps()) {}

  ~PinHandle() override {
    calls_.Cancel();
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      if (shards_[ps].pin.has_value()) Unpin(ps, *shards_[ps].pin);
    }
  }

  // Makes every shard pin its newest version.
  void Start() ABSL_LOCKS_EXCLUDED(mutex_) {
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) Pin(ps);
  }

  bool done() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return over() || calls_.IsOver();
  }

  absl::Status Await(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::Status status = calls_.Await(
        deadline, [this] { return over(); }, [this] { return Missing(); });
    if (!status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    return error_;
  }

  GlobalStep version() const override {
    return generation_->placement.VersionOf(versions());
  }

  std::unique_ptr<Cluster::Pull> StartRead(Parameters* into) override {
    return StartPullOfPinned(generation_, versions(), into);
  }

 private:
  enum class Stage {
    kPinning,
    // Waits for the shards whose versions are below version_ to reach it.
    kAwaitingVersion,
    kPinned,
  };
  struct Shard {
    // The pin that the shard holds for us, if any.
    std::optional<uint64_t> pin;
    // The version that the shard has pinned or, without a pin, has reached.
    GlobalStep version;
    bool answered = false;
    // Why the ps has pinned nothing, as last heard, with the name of the ps.
    std::string refusal;
  };

  bool over() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !error_.ok() || stage_ == Stage::kPinned;
  }

  std::vector<GlobalStep> versions() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    std::vector<GlobalStep> versions;
    for (const Shard& shard : shards_) versions.push_back(shard.version);
    return versions;
  }

  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> names;
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      if (shards_[ps].answered) continue;
      names.push_back(shards_[ps].refusal.empty()
                          ? generation_->context->ps_names[ps]
                          : shards_[ps].refusal);
    }
    return absl::StrCat(stage_ == Stage::kPinning
                            ? "a pinned version"
                            : absl::StrCat("version ", version_.value()),
                        " at ", absl::StrJoin(names, ", "));
  }

  void Pin(uint32_t ps) ABSL_LOCKS_EXCLUDED(mutex_) {
    proto::PinRequest request;
    request.set_hold_ms(absl::ToInt64Milliseconds(hold_));
    calls_.Start(rpc::kPin, ps, std::move(request),
                 [this, ps](absl::StatusOr<proto::PinResponse> response) {
                   return OnPinned(ps, response);
                 });
  }

  // A ps that has no memory for another version is asked again: it has some
  // once a pin there ends, perhaps one of ours that is being released.
  Next OnPinned(uint32_t ps, const absl::StatusOr<proto::PinResponse>& response)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (absl::IsResourceExhausted(response.status())) {
        shards_[ps].refusal = std::string(response.status().message());
        return Next::kAgain;
      }
      if (!response.ok()) {
        if (error_.ok()) error_ = response.status();
        return Next::kDone;
      }
      Shard& shard = shards_[ps];
      shard.pin = response->pin();
      shard.refusal.clear();
      shard.version = GlobalStep(response->version());
      shard.answered = true;
      version_ = std::max(version_, shard.version);
      if (!all_answered()) return Next::kDone;
      if (asynchronous_ || agreed()) {
        stage_ = Stage::kPinned;
        return Next::kDone;
      }
      stage_ = Stage::kAwaitingVersion;
    }
    for (const uint32_t behind : TakeBehind()) AwaitVersion(behind);
    return Next::kDone;
  }

  // Releases the pins of the shards with versions below version_, and returns
  // these shards.
  std::vector<uint32_t> TakeBehind() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<uint32_t> behind;
    std::vector<uint64_t> pins;
    {
      absl::MutexLock lock(&mutex_);
      for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
        Shard& shard = shards_[ps];
        if (shard.version >= version_) continue;
        shard.answered = false;
        behind.push_back(ps);
        pins.push_back(*std::exchange(shard.pin, std::nullopt));
      }
    }
    for (size_t i = 0; i < behind.size(); ++i) Unpin(behind[i], pins[i]);
    return behind;
  }

  void AwaitVersion(uint32_t ps) ABSL_LOCKS_EXCLUDED(mutex_) {
    proto::PullRequest request;
    {
      absl::MutexLock lock(&mutex_);
      request.set_min_version(version_.value());
    }
    request.set_wait_ms(
        absl::ToInt64Milliseconds(generation_->context->timing.park));
    calls_.Start(
        rpc::kPull, ps, std::move(request),
        [this,
         ps](const absl::StatusOr<WithTensors<proto::PullResponse>>& answer) {
          return OnVersion(ps, answer);
        });
  }

  Next OnVersion(uint32_t ps,
                 const absl::StatusOr<WithTensors<proto::PullResponse>>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<uint32_t> to_pin;
    {
      absl::MutexLock lock(&mutex_);
      if (!answer.ok()) {
        if (error_.ok()) error_ = answer.status();
        return Next::kDone;
      }
      if (GlobalStep(answer->message.version()) < version_) return Next::kAgain;
      shards_[ps].answered = true;
      if (!all_answered()) return Next::kDone;
      stage_ = Stage::kPinning;
      for (uint32_t other = 0; other < shards_.size(); ++other) {
        if (shards_[other].pin.has_value()) continue;
        shards_[other].answered = false;
        to_pin.push_back(other);
      }
    }
    for (const uint32_t other : to_pin) Pin(other);
    return Next::kDone;
  }

  bool all_answered() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return std::all_of(shards_.begin(), shards_.end(),
                       [](const Shard& s) { return s.answered; });
  }
  bool agreed() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return std::all_of(shards_.begin(), shards_.end(), [this](const Shard& s) {
      return s.version == version_;
    });
  }

  // Releases a pin, without waiting.
  void Unpin(uint32_t ps, uint64_t pin) {
    proto::UnpinRequest request;
    request.set_pin(pin);
    generation_->background.Start(
        rpc::kUnpin, ps, std::move(request),
        [](const absl::StatusOr<proto::UnpinResponse>&) {
          return Next::kDone;
        });
  }

  const std::shared_ptr<GenerationState> generation_;
  absl::Mutex& mutex_;
  const bool asynchronous_;
  const absl::Duration hold_;
  CallGroup calls_;

  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kPinning;
  std::vector<Shard> shards_ ABSL_GUARDED_BY(mutex_);
  // The highest version seen.
  GlobalStep version_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

class StartedPinRequest : public PinRequest {
 public:
  explicit StartedPinRequest(std::unique_ptr<PinHandle> pin)
      : pin_(std::move(pin)) {}

  bool done() const override { return pin_ == nullptr || pin_->done(); }

  absl::StatusOr<std::unique_ptr<Cluster::Pin>> Await(
      absl::Time deadline) override {
    if (pin_ == nullptr) {
      return absl::FailedPreconditionError("the pin was taken before");
    }
    HOLDFAST_RETURN_IF_ERROR(pin_->Await(deadline));
    return std::move(pin_);
  }

 private:
  std::unique_ptr<PinHandle> pin_;
};

// Stands for a request that could not be started. Await returns the reason.
class FailedPinRequest : public PinRequest {
 public:
  explicit FailedPinRequest(absl::Status error) : error_(std::move(error)) {}
  bool done() const override { return true; }
  absl::StatusOr<std::unique_ptr<Cluster::Pin>> Await(absl::Time) override {
    return error_;
  }

 private:
  const absl::Status error_;
};

}  // namespace

std::unique_ptr<PinRequest> StartPin(
    absl::StatusOr<std::shared_ptr<GenerationState>> ready,
    absl::Duration hold) {
  if (hold < absl::Milliseconds(1) || hold > kMaxHold) {
    return std::make_unique<FailedPinRequest>(
        absl::InvalidArgumentError(absl::StrCat(
            "a pin may be held for 1ms to ", absl::FormatDuration(kMaxHold),
            ", not for ", absl::FormatDuration(hold))));
  }
  if (!ready.ok()) return std::make_unique<FailedPinRequest>(ready.status());
  auto pin = std::make_unique<PinHandle>(*std::move(ready), hold);
  pin->Start();
  return std::make_unique<StartedPinRequest>(std::move(pin));
}

}  // namespace holdfast::client
