// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/follow_up.h"
#include "proto/coordinator.pb.h"

namespace holdfast::client {
namespace {

class Application final : public FollowUp {
 public:
  Application(const PushFacts* push, const CallGroup* calls,
              OnOutcome on_outcome)
      : push_(*push),
        ticket_(*push->ticket),
        calls_(*calls),
        on_outcome_(std::move(on_outcome)),
        shards_(push->context().num_ps()) {
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      shards_[ps].applied = !push_.generation->placement.Trains(ps);
      if (!shards_[ps].applied) ++num_left_;
    }
    spent_.mutable_receipts()->Resize(static_cast<int>(shards_.size()), 0);
  }

  absl::Status Check(const Contribution& contribution) const override {
    if (contribution.examples == 0 ||
        std::isfinite(contribution.loss.value_or(0))) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the loss of push ", push_.sequence.value(), " is ",
                     *contribution.loss, ": contribute it with 0 examples"));
  }

  void Start(const Contribution& contribution) override {
    const bool empty = contribution.examples == 0;
    proto::ApplyRequest request;
    request.set_sequence(push_.sequence.value());
    request.mutable_scalars()->Assign(ticket_.scalars.begin(),
                                      ticket_.scalars.end());
    request.set_clip_factor(empty ? 0 : contribution.clip_factor);
    request.set_examples(contribution.examples);
    request.set_not_finite(contribution.not_finite);
    request.set_ticket_receipt(ticket_.receipt);
    request.set_wait_ms(absl::ToInt64Milliseconds(push_.context().timing.park));
    bool none;
    {
      absl::MutexLock lock(&push_.context().mutex);
      if (!empty) {
        for (const uint64_t receipt :
             push_.generation->sequences.Receipts(push_.sequence)) {
          request.add_receipts(receipt);
        }
      }
      SetSpent(contribution);
      none = num_left_ == 0;
    }
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      if (!push_.generation->placement.Trains(ps)) continue;
      calls_.Start(
          rpc::kApply, ps, request,
          [this, ps](const absl::StatusOr<proto::ApplyResponse>& response) {
            return OnAnswer(ps, response);
          });
    }
    if (none) Finish();
  }

  void FillIn(const Contribution& contribution,
              proto::PushPullRequest* request) const override {
    proto::PushPullRequest::Application& application =
        *request->mutable_application();
    application.mutable_scalars()->Assign(ticket_.scalars.begin(),
                                          ticket_.scalars.end());
    application.set_examples(contribution.examples);
    application.set_not_finite(contribution.not_finite);
    application.set_clip_factor(
        contribution.examples > 0 ? contribution.clip_factor : 0);
    application.set_ticket_receipt(ticket_.receipt);
  }

  void Take(const Contribution& contribution,
            const proto::PushPullResponse& response) override {
    {
      absl::MutexLock lock(&push_.context().mutex);
      SetSpent(contribution);
    }
    proto::ApplyResponse applied;
    applied.set_verdict(response.verdict());
    applied.set_staleness(response.staleness());
    applied.set_receipt(response.receipt());
    OnAnswer(0, applied);
  }

  // 0 stands for the newest version.
  GlobalStep next_version() const override { return GlobalStep(0); }
  bool IsFollowed(proto::Verdict verdict) const override {
    return verdict == proto::ACCEPTED;
  }

  std::string Missing() const override {
    std::vector<std::string> names;
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      if (shards_[ps].applied) continue;
      names.push_back(push_.context().ps_names[ps]);
      if (!shards_[ps].waiting_for.empty()) {
        absl::StrAppend(&names.back(), ", which waits for ",
                        shards_[ps].waiting_for);
      }
    }
    return absl::StrCat("the application of push ", push_.sequence.value(),
                        " by ", absl::StrJoin(names, "; "));
  }

 private:
  struct Shard {
    // Also true if there is nothing to apply at this shard.
    bool applied = false;
    std::string waiting_for;
  };

  void SetSpent(const Contribution& contribution)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_.context().mutex) {
    spent_.set_sequence(push_.sequence.value());
    spent_.set_examples(contribution.examples);
    if (contribution.examples > 0) SetLoss(contribution, &spent_);
    spent_.set_not_finite(contribution.not_finite);
  }

  Next OnAnswer(uint32_t ps,
                const absl::StatusOr<proto::ApplyResponse>& response) {
    if (!response.ok()) {
      TellOnce(response.status());
      return Next::kDone;
    }
    if (response->verdict() == proto::VERDICT_UNSPECIFIED) {
      if (response->state().phase() == proto::DONE) {
        TellOnce(absl::FailedPreconditionError(absl::StrCat(
            push_.context().ps_names[ps], ": the job is done, push ",
            push_.sequence.value(), " will not be applied")));
        return Next::kDone;
      }
      absl::MutexLock lock(&push_.context().mutex);
      shards_[ps].waiting_for = response->waiting_for();
      return Next::kAgain;
    }
    if (response->verdict() != proto::ACCEPTED) {
      push_.generation->encoder.Settle(push_.sequence, false);
      TellOnce(Cluster::Outcome{response->verdict()});
      return Next::kDone;
    }
    {
      absl::MutexLock lock(&push_.context().mutex);
      shards_[ps].applied = true;
      spent_.set_staleness(std::max(spent_.staleness(), response->staleness()));
      spent_.set_receipts(static_cast<int>(ps), response->receipt());
      if (--num_left_ > 0) return Next::kDone;
    }
    Finish();
    return Next::kDone;
  }

  // All shards have applied the push.
  void Finish() {
    proto::SpentTicket spent;
    {
      absl::MutexLock lock(&push_.context().mutex);
      spent = spent_;
    }
    // Before the outcome is delivered, so that the next request for a ticket
    // reports the spent one.
    push_.generation->tickets.Spend(spent);
    push_.generation->encoder.Settle(push_.sequence, true);
    TellOnce(
        Cluster::Outcome{proto::ACCEPTED, GlobalStep(0), spent.staleness()});
  }

  void TellOnce(const absl::StatusOr<Cluster::Outcome>& outcome) {
    {
      absl::MutexLock lock(&push_.context().mutex);
      if (std::exchange(told_, true)) return;
    }
    on_outcome_(outcome);
  }

  const PushFacts& push_;
  const Ticket& ticket_;
  const CallGroup& calls_;
  const OnOutcome on_outcome_;

  // Reported when all shards have applied the push.
  proto::SpentTicket spent_ ABSL_GUARDED_BY(push_.context().mutex);
  std::vector<Shard> shards_ ABSL_GUARDED_BY(push_.context().mutex);
  size_t num_left_ ABSL_GUARDED_BY(push_.context().mutex) = 0;
  bool told_ ABSL_GUARDED_BY(push_.context().mutex) = false;
};

}  // namespace

std::unique_ptr<FollowUp> MakeApplication(const PushFacts* push,
                                          const CallGroup* calls,
                                          FollowUp::OnOutcome on_outcome) {
  return std::make_unique<Application>(push, calls, std::move(on_outcome));
}

}  // namespace holdfast::client
