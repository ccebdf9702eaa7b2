#include "client/offer.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace holdfast::client {
namespace {

class OfferHandle : public Cluster::Offer {
 public:
  OfferHandle(std::shared_ptr<GenerationState> generation,
              const Contribution& offer)
      : generation_(std::move(generation)),
        mutex_(generation_->context->mutex),
        offer_(offer),
        calls_(generation_->context, generation_->sender) {}

  ~OfferHandle() override {
    calls_.Cancel();
    absl::MutexLock lock(&mutex_);
    generation_->sequences.Release(offer_.sequence);
  }

  void Start() ABSL_LOCKS_EXCLUDED(mutex_) {
    proto::ContributeRequest request;
    request.set_step(offer_.step.value());
    request.set_seat(offer_.seat);
    request.set_sequence(offer_.sequence.value());
    request.set_examples(offer_.examples);
    request.set_clip_factor(offer_.clip_factor);
    request.set_loss(offer_.loss);
    request.set_not_finite(offer_.not_finite);
    request.set_wait_ms(
        absl::ToInt64Milliseconds(generation_->context->timing.park));
    {
      absl::MutexLock lock(&mutex_);
      generation_->sequences.Hold(offer_.sequence, offer_.step);
      request.set_acked_through(generation_->sequences.acked_through().value());
      if (offer_.examples > 0) {
        for (const uint64_t receipt :
             generation_->sequences.Receipts(offer_.sequence)) {
          request.add_receipts(receipt);
        }
      }
    }
    calls_.Start(rpc::kContribute, 0, std::move(request),
                 [this](absl::StatusOr<proto::ContributeResponse> response) {
                   return OnAnswer(response);
                 });
  }

  absl::StatusOr<Cluster::Outcome> Await(absl::Time deadline) override {
    const absl::Status status = calls_.Await(
        deadline, [this] { return !error_.ok() || outcome_.has_value(); },
        [this] { return Missing(); });
    calls_.Cancel();
    absl::MutexLock lock(&mutex_);
    if (error_.ok()) error_ = status;
    if (!error_.ok()) return error_;
    return *outcome_;
  }

 private:
  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    std::string text =
        absl::StrCat("the verdict on push ", offer_.sequence.value(), " by ",
                     generation_->context->ps_names[0]);
    const std::string& step = generation_->context->step_waits_for;
    if (!step.empty()) absl::StrAppend(&text, "; ", step);
    return text;
  }

  Next OnAnswer(const absl::StatusOr<proto::ContributeResponse>& response)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!response.ok()) {
      error_ = response.status();
      return Next::kDone;
    }
    if (response->verdict() != proto::VERDICT_UNSPECIFIED) {
      outcome_ = {response->verdict(), GlobalStep(response->global_step())};
      generation_->sequences.Settle(offer_.sequence);
      generation_->encoder.Settle(
          offer_.sequence,
          response->verdict() == proto::ACCEPTED && offer_.examples > 0);
      generation_->context->step_waits_for.clear();
      return Next::kDone;
    }
    if (response->state().phase() == proto::DONE) {
      error_ = absl::FailedPreconditionError(
          absl::StrCat(generation_->context->ps_names[0],
                       ": the job is done, there is no verdict on push ",
                       offer_.sequence.value()));
      return Next::kDone;
    }
    if (response->waiting_for().empty()) {
      generation_->context->step_waits_for.clear();
    } else {
      generation_->context->step_waits_for =
          absl::StrCat("step ", response->global_step(), " waits for ",
                       response->waiting_for());
    }
    return Next::kAgain;
  }

  const std::shared_ptr<GenerationState> generation_;
  absl::Mutex& mutex_;
  const Contribution offer_;
  CallGroup calls_;

  std::optional<Cluster::Outcome> outcome_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

// A contribution that could not begin.
class FailedOffer : public Cluster::Offer {
 public:
  explicit FailedOffer(absl::Status error) : error_(std::move(error)) {}
  absl::StatusOr<Cluster::Outcome> Await(absl::Time) override { return error_; }

 private:
  const absl::Status error_;
};

}  // namespace

std::unique_ptr<Cluster::Offer> StartContribute(
    absl::StatusOr<std::shared_ptr<GenerationState>> ready,
    const Contribution& offer) {
  if (!ready.ok()) return std::make_unique<FailedOffer>(ready.status());
  auto handle = std::make_unique<OfferHandle>(*std::move(ready), offer);
  handle->Start();
  return handle;
}

}  // namespace holdfast::client
