// SPDX-License-Identifier: Apache-2.0
#include "client/part_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"

namespace holdfast::client {
namespace {

// The maximum number of parts in flight to one ps. More would hide a longer
// round trip, but later parts take bandwidth from those that are needed first.
constexpr int kMaxPartsInFlight = 4;

}  // namespace

PartSender::PartSender(const PushFacts* push, const Gradients* gradients,
                       CallGroup* calls, std::function<void()> on_end)
    : push_(*push),
      gradients_(*gradients),
      calls_(*calls),
      on_end_(std::move(on_end)),
      awaits_rows_(gradients->rows() != nullptr),
      handed_in_(push->layout().variables().size(), false),
      shards_(push->layout().num_ps()) {
  absl::MutexLock lock(&push_.context().mutex);
  for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
    if (!push->announced.empty()) shards_[ps].announced = push->announced[ps];
    SendBy(ps, push_.plan());
  }
}

void PartSender::SendBy(uint32_t ps, const Plan& plan) {
  Shard& shard = shards_[ps];
  const std::vector<Plan::Part>& parts = plan.parts[ps];
  // One extra part, never sent, stands for the parts of future rows.
  size_t num_parts = gradients_.num_parts(plan, ps) + (awaits_rows_ ? 1 : 0);
  // [H8] If parts were sent, the ps has to begin anew.
  if (num_parts > 0) num_parts = std::max(num_parts, shard.announced + 1);
  num_unacknowledged_ -= shard.unacknowledged;
  num_unacknowledged_ += num_parts;
  shard.plan = &plan;
  shard.num_parts = num_parts;
  shard.unsent = num_parts;
  shard.unacknowledged = num_parts;
  shard.missing.clear();
  shard.ready.clear();
  for (uint32_t part = 0; part < parts.size(); ++part) {
    shard.missing.push_back(std::count_if(
        parts[part].begin(), parts[part].end(), [&](const ElementRange& range) {
          return !handed_in_[range.variable];
        }));
    if (shard.missing[part] == 0) shard.ready.push_back(part);
  }
  for (size_t part = parts.size(); part < num_parts; ++part) {
    shard.ready.push_back(static_cast<uint32_t>(part));
  }
}

void PartSender::Start() {
  started_ = true;
  for (uint32_t ps = 0; ps < shards_.size(); ++ps) SendReady(ps);
}

void PartSender::SendAll() {
  if (std::exchange(sends_all_, true)) return;
  {
    absl::MutexLock lock(&push_.context().mutex);
    holds_back_ = false;
  }
  Start();
}

std::vector<size_t> PartSender::announced() const {
  absl::MutexLock lock(&push_.context().mutex);
  std::vector<size_t> announced;
  for (const Shard& shard : shards_) announced.push_back(shard.announced);
  return announced;
}

void PartSender::OnHandedIn(size_t variable) {
  std::vector<uint32_t> to;
  {
    absl::MutexLock lock(&push_.context().mutex);
    handed_in_[variable] = true;
    for (const Plan* plan : {&push_.plan(), &push_.sent_plan()}) {
      for (const Plan::Place& place : plan->places[variable]) {
        Shard& shard = shards_[place.ps];
        if (shard.plan != plan) continue;
        if (--shard.missing[place.part] > 0) continue;
        shard.ready.push_back(place.part);
        to.push_back(place.ps);
      }
    }
  }
  if (!started_) return;
  for (const uint32_t ps : to) SendReady(ps);
}

void PartSender::OnRowsClosed() {
  {
    absl::MutexLock lock(&push_.context().mutex);
    awaits_rows_ = false;
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      SendBy(ps, *shards_[ps].plan);
    }
  }
  if (!started_) return;
  for (uint32_t ps = 0; ps < shards_.size(); ++ps) SendReady(ps);
}

void PartSender::Stop() {
  absl::MutexLock lock(&push_.context().mutex);
  stopped_ = true;
}

std::string PartSender::Missing() const {
  std::vector<std::string> names;
  std::string refusals;
  for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
    if (shards_[ps].unacknowledged == 0) continue;
    names.push_back(push_.context().ps_names[ps]);
    if (!shards_[ps].refusal.empty()) {
      absl::StrAppend(&refusals, "; ", shards_[ps].refusal);
    }
  }
  return absl::StrCat("the acknowledgment of push ", push_.sequence.value(),
                      " by ", absl::StrJoin(names, ", "), refusals);
}

void PartSender::SendReady(uint32_t ps) {
  for (;;) {
    WithTensors<proto::PushRequest> part;
    proto::PushRequest& request = part.message;
    const Plan* plan;
    {
      absl::MutexLock lock(&push_.context().mutex);
      Shard& shard = shards_[ps];
      const int at_a_time = shard.refusal.empty() ? kMaxPartsInFlight : 1;
      if (stopped_ || decided() || awaits_rows_ || shard.ready.empty() ||
          shard.pausing || shard.not_lent || shard.in_flight >= at_a_time ||
          (holds_back_ && shard.unsent == 1)) {
        return;
      }
      plan = shard.plan;
      request.set_part(shard.ready.front());
      request.set_num_parts(shard.num_parts);
      shard.announced = shard.num_parts;
      shard.ready.pop_front();
      --shard.unsent;
      ++shard.in_flight;
      request.set_acked_through(
          push_.generation->sequences.acked_through().value());
    }
    request.set_sequence(push_.sequence.value());
    request.set_step(push_.steps[ps].value());
    const uint32_t index = request.part();
    part.tensors = gradients_.PiecesOf(*plan, ps, index);
    calls_.Start(
        rpc::kPush, ps, std::move(part),
        [this, ps, index](const absl::StatusOr<proto::PushResponse>& response) {
          OnAnswer(ps, index, response);
          return Next::kDone;
        });
  }
}

void PartSender::OnAnswer(uint32_t ps, uint32_t part,
                          const absl::StatusOr<proto::PushResponse>& response) {
  Backoff* pause = nullptr;
  bool ends;
  {
    absl::MutexLock lock(&push_.context().mutex);
    Shard& shard = shards_[ps];
    --shard.in_flight;
    if (stopped_) return;
    if (absl::IsOutOfRange(response.status()) &&
        Placement::MayBeSent(ps, *shard.plan, push_.sent_plan())) {
      shard.not_lent = true;
    } else if (absl::IsResourceExhausted(response.status())) {
      shard.ready.push_front(part);
      ++shard.unsent;
      shard.refusal = std::string(response.status().message());
      if (!std::exchange(shard.pausing, true)) pause = &shard.backoff;
    } else if (!response.ok()) {
      if (error_.ok()) error_ = response.status();
    } else if (IsOutcome(response->verdict())) {
      verdict_ = response->verdict();
      GenerationState& generation = *push_.generation;
      generation.encoder.Settle(push_.sequence, verdict_ == proto::ACCEPTED);
      // With a ticket, the coordinator has to hear of the verdict first.
      if (!push_.ticket.has_value()) {
        generation.sequences.Settle(push_.sequence);
      }
    } else {
      --shard.unacknowledged;
      --num_unacknowledged_;
      if (response->receipt() != 0) {
        push_.generation->sequences.KeepReceipt(push_.sequence, ps,
                                                response->receipt());
      }
      shard.refusal.clear();
      shard.backoff.Reset();
    }
    if (shard.not_lent && shard.in_flight == 0) {
      shard.not_lent = false;
      SendBy(ps, push_.sent_plan());
    }
    ends = ended();
  }
  if (pause != nullptr) {
    calls_.After(pause, [this, ps] {
      {
        absl::MutexLock lock(&push_.context().mutex);
        shards_[ps].pausing = false;
      }
      SendReady(ps);
    });
  }
  SendReady(ps);
  if (ends) on_end_();
}

// Whether a shard's verdict on a part is the verdict on the whole push. An
// asynchronous push counts when all shards have applied it, not when this one
// has.
bool PartSender::IsOutcome(proto::Verdict verdict) const {
  return verdict != proto::VERDICT_UNSPECIFIED &&
         !(push_.asynchronous() && verdict == proto::ACCEPTED);
}

}  // namespace holdfast::client
