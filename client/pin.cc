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

namespace holdfast::client {
namespace {

// As PinRequest.hold_ms in proto/shard.proto.
constexpr absl::Duration kMaxHold = absl::Hours(1);

// The pins on all shards.
class PinHandle : public Cluster::Pin {
 public:
  PinHandle(std::shared_ptr<Generation> generation, absl::Duration hold)
      : generation_(std::move(generation)),
        mutex_(generation_->context->mutex),
        asynchronous_(generation_->placement.asynchronous()),
        hold_(hold),
        calls_(generation_->context, generation_->sender),
        shards_(generation_->wire->num_ps()) {}

  ~PinHandle() override {
    calls_.Cancel();
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) Unpin(ps);
  }

  absl::Status Acquire(absl::Time deadline) {
    for (;;) {
      if (absl::Status status = PinNewest(deadline); !status.ok()) {
        return status;
      }
      if (asynchronous_ || agreed()) return absl::OkStatus();
      for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
        if (shards_[ps].version < version_) Unpin(ps);
      }
      if (absl::Status status = AwaitVersion(deadline); !status.ok()) {
        return status;
      }
    }
  }

  GlobalStep version() const override {
    const std::vector<GlobalStep> pinned = versions();
    return *std::min_element(pinned.begin(), pinned.end());
  }

  absl::Status Read(Parameters* into, absl::Time deadline) override {
    {
      absl::MutexLock lock(&mutex_);
      if (absl::Status over = generation_->WhyOver(); !over.ok()) return over;
    }
    return StartPullOfPinned(generation_, versions(), into)->Await(deadline);
  }

 private:
  struct Shard {
    // Of the pin held.
    std::optional<uint64_t> pin;
    // Of the pin held, or reached.
    GlobalStep version;
    bool answered = false;
    // Why it has pinned nothing, as last heard, with its name.
    std::string refusal;
  };

  std::vector<GlobalStep> versions() const {
    std::vector<GlobalStep> versions;
    for (const Shard& shard : shards_) versions.push_back(shard.version);
    return versions;
  }

  bool agreed() const {
    return std::all_of(shards_.begin(), shards_.end(), [this](const Shard& s) {
      return s.pin.has_value() && s.version == version_;
    });
  }

  // Pins the newest version on the shards without a pin.
  absl::Status PinNewest(absl::Time deadline) {
    proto::PinRequest request;
    request.set_hold_ms(absl::ToInt64Milliseconds(hold_));
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      shards_[ps].answered = shards_[ps].pin.has_value();
      if (shards_[ps].answered) continue;
      generation_->wire->Pin(
          calls_, ps, request,
          [this, ps](absl::StatusOr<proto::PinResponse> response) {
            return OnPinned(ps, response);
          });
    }
    return AwaitAnswers(deadline, "a pinned version");
  }

  // A ps without memory for another version has it once a pin there, perhaps
  // one of ours that is being let go, has ended.
  Next OnPinned(uint32_t ps, const absl::StatusOr<proto::PinResponse>& response)
      ABSL_LOCKS_EXCLUDED(mutex_) {
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
    return Next::kDone;
  }

  // Waits until the shards below version_ have reached it.
  absl::Status AwaitVersion(absl::Time deadline) {
    proto::PullRequest request;
    request.set_min_version(version_.value());
    request.set_wait_ms(
        absl::ToInt64Milliseconds(generation_->context->timing.park));
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      shards_[ps].answered = shards_[ps].version >= version_;
      if (shards_[ps].answered) continue;
      generation_->wire->Pull(
          calls_, ps, request,
          [this,
           ps](const absl::StatusOr<WithTensors<proto::PullResponse>>& answer) {
            return OnVersion(ps, answer);
          });
    }
    return AwaitAnswers(deadline, absl::StrCat("version ", version_.value()));
  }

  Next OnVersion(uint32_t ps,
                 const absl::StatusOr<WithTensors<proto::PullResponse>>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!answer.ok()) {
      if (error_.ok()) error_ = answer.status();
      return Next::kDone;
    }
    if (GlobalStep(answer->message.version()) < version_) return Next::kAgain;
    shards_[ps].answered = true;
    return Next::kDone;
  }

  absl::Status AwaitAnswers(absl::Time deadline, const std::string& what) {
    const absl::Status status = calls_.Await(
        deadline,
        [this] {
          return !error_.ok() ||
                 std::all_of(shards_.begin(), shards_.end(),
                             [](const Shard& s) { return s.answered; });
        },
        [&] {
          std::vector<std::string> names;
          for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
            if (shards_[ps].answered) continue;
            names.push_back(shards_[ps].refusal.empty()
                                ? generation_->wire->PsName(ps)
                                : shards_[ps].refusal);
          }
          return absl::StrCat(what, " at ", absl::StrJoin(names, ", "));
        });
    if (!status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    return error_;
  }

  // Lets go of the pin on one shard, if there is one, without waiting.
  void Unpin(uint32_t ps) {
    if (!shards_[ps].pin.has_value()) return;
    proto::UnpinRequest request;
    request.set_pin(*shards_[ps].pin);
    shards_[ps].pin.reset();
    generation_->wire->Unpin(generation_->background, ps, std::move(request),
                             [](const absl::StatusOr<proto::UnpinResponse>&) {
                               return Next::kDone;
                             });
  }

  const std::shared_ptr<Generation> generation_;
  absl::Mutex& mutex_;
  const bool asynchronous_;
  const absl::Duration hold_;
  CallGroup calls_;

  // Guarded by mutex_ while calls are out.
  std::vector<Shard> shards_;
  // The highest seen.
  GlobalStep version_;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster::Pin>> PinVersion(const Core& core,
                                                         absl::Duration hold,
                                                         absl::Time deadline) {
  if (hold < absl::Milliseconds(1) || hold > kMaxHold) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a pin is held for 1ms to ", absl::FormatDuration(kMaxHold),
        ", not for ", absl::FormatDuration(hold)));
  }
  absl::StatusOr<std::shared_ptr<Generation>> ready = core.Ready();
  if (!ready.ok()) return ready.status();
  auto pin = std::make_unique<PinHandle>(*std::move(ready), hold);
  if (absl::Status status = pin->Acquire(deadline); !status.ok()) {
    return status;
  }
  return pin;
}

}  // namespace holdfast::client
