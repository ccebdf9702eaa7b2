// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/follow_up.h"
#include "proto/coordinator.pb.h"

namespace holdfast::client {
namespace {

class Offer final : public FollowUp {
 public:
  Offer(const PushFacts* push, const CallGroup* calls, OnOutcome on_outcome)
      : push_(*push), calls_(*calls), on_outcome_(std::move(on_outcome)) {}

  absl::Status Check(const Contribution&) const override {
    return absl::OkStatus();
  }

  void Start(const Contribution& contribution) override {
    proto::ContributeRequest request;
    request.set_step(push_.steps.front().value());
    request.set_seat(contribution.seat);
    request.set_sequence(push_.sequence.value());
    request.set_examples(contribution.examples);
    request.set_clip_factor(contribution.clip_factor);
    SetLoss(contribution, &request);
    request.set_not_finite(contribution.not_finite);
    request.set_wait_ms(absl::ToInt64Milliseconds(push_.context().timing.park));
    {
      absl::MutexLock lock(&push_.context().mutex);
      const Sequences& sequences = push_.generation->sequences;
      request.set_acked_through(sequences.acked_through().value());
      if (contribution.examples > 0) {
        for (const uint64_t receipt : sequences.Receipts(push_.sequence)) {
          request.add_receipts(receipt);
        }
      }
    }
    calls_.Start(rpc::kContribute, 0, std::move(request),
                 [this, counts = contribution.examples > 0](
                     const absl::StatusOr<proto::ContributeResponse>& answer) {
                   return OnAnswer(counts, answer);
                 });
  }

  void FillIn(const Contribution& contribution,
              proto::PushPullRequest* request) const override {
    proto::PushPullRequest::Contribution& offer =
        *request->mutable_contribution();
    offer.set_seat(contribution.seat);
    offer.set_examples(contribution.examples);
    offer.set_clip_factor(contribution.clip_factor);
    SetLoss(contribution, &offer);
    offer.set_not_finite(contribution.not_finite);
  }

  void Take(const Contribution& contribution,
            const proto::PushPullResponse& response) override {
    Settle(contribution.examples > 0, response.verdict());
    on_outcome_(Cluster::Outcome{response.verdict(),
                                 GlobalStep(response.global_step())});
  }

  GlobalStep next_version() const override {
    return push_.steps.front().next();
  }
  bool IsFollowed(proto::Verdict verdict) const override {
    return verdict != proto::FENCED;
  }

  std::string Missing() const override { return push_.MissingVerdict(); }

 private:
  Next OnAnswer(bool counts,
                const absl::StatusOr<proto::ContributeResponse>& response) {
    if (!response.ok()) {
      on_outcome_(response.status());
      return Next::kDone;
    }
    if (response->verdict() != proto::VERDICT_UNSPECIFIED) {
      Settle(counts, response->verdict());
      on_outcome_(Cluster::Outcome{response->verdict(),
                                   GlobalStep(response->global_step())});
      return Next::kDone;
    }
    if (response->state().phase() == proto::DONE) {
      on_outcome_(absl::FailedPreconditionError(
          absl::StrCat(push_.context().ps_names[0],
                       ": the job is done, there is no verdict on push ",
                       push_.sequence.value())));
      return Next::kDone;
    }
    absl::MutexLock lock(&push_.context().mutex);
    std::string& waits_for = push_.context().step_waits_for;
    waits_for.clear();
    if (!response->waiting_for().empty()) {
      waits_for = absl::StrCat("step ", response->global_step(), " waits for ",
                               response->waiting_for());
    }
    return Next::kAgain;
  }

  void Settle(bool counts, proto::Verdict verdict) {
    push_.generation->encoder.Settle(push_.sequence,
                                     verdict == proto::ACCEPTED && counts);
    absl::MutexLock lock(&push_.context().mutex);
    push_.generation->sequences.Settle(push_.sequence);
    push_.context().step_waits_for.clear();
  }

  const PushFacts& push_;
  const CallGroup& calls_;
  const OnOutcome on_outcome_;
};

}  // namespace

std::unique_ptr<FollowUp> MakeOffer(const PushFacts* push,
                                    const CallGroup* calls,
                                    FollowUp::OnOutcome on_outcome) {
  return std::make_unique<Offer>(push, calls, std::move(on_outcome));
}

}  // namespace holdfast::client
