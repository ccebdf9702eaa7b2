#include "client/apply.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast::client {

Applier::Applier(GenerationState* generation, const CallGroup* calls,
                 const Ticket& ticket)
    : generation_(generation),
      mutex_(generation->context->mutex),
      calls_(*calls),
      ticket_(ticket),
      shards_(generation->context->num_ps()) {
  for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
    shards_[ps].applied = generation_->placement.push.parts[ps].empty();
    if (!shards_[ps].applied) ++num_left_;
  }
  spent_.mutable_receipts()->Resize(static_cast<int>(shards_.size()), 0);
}

void Applier::Start(const Application& application) {
  const bool empty = application.examples == 0;
  bool none;
  proto::ApplyRequest request;
  request.set_sequence(ticket_.sequence.value());
  request.mutable_scalars()->Assign(ticket_.scalars.begin(),
                                    ticket_.scalars.end());
  request.set_clip_factor(empty ? 0 : application.clip_factor);
  request.set_examples(application.examples);
  request.set_not_finite(application.not_finite);
  request.set_wait_ms(
      absl::ToInt64Milliseconds(generation_->context->timing.park));
  {
    absl::MutexLock lock(&mutex_);
    if (!empty) {
      for (const uint64_t receipt :
           generation_->sequences.Receipts(ticket_.sequence)) {
        request.add_receipts(receipt);
      }
    }
    SetSpent(application);
    none = num_left_ == 0;
  }
  request.set_ticket_receipt(ticket_.receipt);
  for (uint32_t ps = 0; ps < generation_->context->num_ps(); ++ps) {
    if (generation_->placement.push.parts[ps].empty()) continue;
    calls_.Start(
        rpc::kApply, ps, request,
        [this, ps](const absl::StatusOr<proto::ApplyResponse>& response) {
          return OnAnswer(ps, response);
        });
  }
  if (none) Finish();
}

void Applier::Take(const Application& application,
                   const proto::ApplyResponse& response) {
  {
    absl::MutexLock lock(&mutex_);
    SetSpent(application);
  }
  OnAnswer(0, response);
}

void Applier::SetSpent(const Application& application) {
  spent_.set_sequence(ticket_.sequence.value());
  spent_.set_examples(application.examples);
  spent_.set_loss(application.examples == 0 ? 0 : application.loss);
  spent_.set_not_finite(application.not_finite);
}

Next Applier::OnAnswer(uint32_t ps,
                       const absl::StatusOr<proto::ApplyResponse>& response) {
  {
    absl::MutexLock lock(&mutex_);
    Shard& shard = shards_[ps];
    if (!response.ok()) {
      if (!over_) error_ = response.status();
      over_ = true;
      return Next::kDone;
    }
    if (response->verdict() == proto::VERDICT_UNSPECIFIED) {
      shard.waiting_for = response->waiting_for();
      if (response->state().phase() != proto::DONE) return Next::kAgain;
      if (!over_) {
        error_ = absl::FailedPreconditionError(absl::StrCat(
            generation_->context->ps_names[ps], ": the job is done, push ",
            ticket_.sequence.value(), " will not be applied"));
      }
      over_ = true;
      return Next::kDone;
    }
    if (response->verdict() != proto::ACCEPTED) {
      if (!over_) verdict_ = response->verdict();
      over_ = true;
      generation_->encoder.Settle(ticket_.sequence, false);
      return Next::kDone;
    }
    shard.applied = true;
    spent_.set_staleness(std::max(spent_.staleness(), response->staleness()));
    spent_.set_receipts(static_cast<int>(ps), response->receipt());
    if (--num_left_ > 0) return Next::kDone;
  }
  Finish();
  return Next::kDone;
}

void Applier::Finish() {
  proto::SpentTicket spent;
  {
    absl::MutexLock lock(&mutex_);
    spent = spent_;
  }
  // Before anybody hears of it, so that the next request for a ticket tells.
  generation_->tickets.Spend(spent);
  generation_->encoder.Settle(ticket_.sequence, true);
  absl::MutexLock lock(&mutex_);
  verdict_ = proto::ACCEPTED;
  over_ = true;
}

absl::StatusOr<Cluster::Push::Applied> Applier::outcome() const {
  if (!error_.ok()) return error_;
  return Cluster::Push::Applied{verdict_, spent_.staleness()};
}

std::string Applier::Missing() const {
  std::vector<std::string> names;
  for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
    if (shards_[ps].applied) continue;
    names.push_back(generation_->context->ps_names[ps]);
    if (!shards_[ps].waiting_for.empty()) {
      absl::StrAppend(&names.back(), ", which waits for ",
                      shards_[ps].waiting_for);
    }
  }
  return absl::StrCat("the application of push ", ticket_.sequence.value(),
                      " by ", absl::StrJoin(names, "; "));
}

}  // namespace holdfast::client
