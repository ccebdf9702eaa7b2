#include "client/part_sender.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"

namespace holdfast::client {
namespace {

// Parts on their way to one ps at a time. More hide a longer round trip, but
// the later ones take their share of the connection from those that are wanted
// first.
constexpr int kMaxPartsInFlight = 4;

}  // namespace

PartSender::PartSender(const PushFacts* push, const Gradients* gradients,
                       CallGroup* calls, std::function<void()> on_end)
    : push_(*push),
      gradients_(*gradients),
      calls_(*calls),
      on_end_(std::move(on_end)),
      shards_(push->layout().num_ps()) {
  for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
    const std::vector<Plan::Part>& parts = push_.plan().parts[ps];
    shards_[ps].unacknowledged = parts.size();
    num_unacknowledged_ += parts.size();
    for (const Plan::Part& part : parts) {
      shards_[ps].missing.push_back(part.size());
    }
  }
}

void PartSender::Start() {
  started_ = true;
  for (uint32_t ps = 0; ps < shards_.size(); ++ps) SendReady(ps);
}

void PartSender::OnHandedIn(size_t variable) {
  const std::vector<Plan::Place>& places = push_.plan().places[variable];
  {
    absl::MutexLock lock(&push_.context().mutex);
    for (const Plan::Place& place : places) {
      Shard& shard = shards_[place.ps];
      if (--shard.missing[place.part] == 0) shard.ready.push_back(place.part);
    }
  }
  if (!started_) return;
  for (const Plan::Place& place : places) SendReady(place.ps);
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
    {
      absl::MutexLock lock(&push_.context().mutex);
      Shard& shard = shards_[ps];
      const int at_a_time = shard.refusal.empty() ? kMaxPartsInFlight : 1;
      if (stopped_ || decided() || shard.ready.empty() || shard.pausing ||
          shard.in_flight >= at_a_time) {
        return;
      }
      request.set_part(shard.ready.front());
      shard.ready.pop_front();
      ++shard.in_flight;
      request.set_acked_through(
          push_.generation->sequences.acked_through().value());
    }
    const std::vector<Plan::Part>& parts = push_.plan().parts[ps];
    request.set_sequence(push_.sequence.value());
    request.set_step(push_.steps[ps].value());
    request.set_num_parts(parts.size());
    const uint32_t index = request.part();
    part.tensors = gradients_.PiecesOf(parts[index]);
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
    if (absl::IsResourceExhausted(response.status())) {
      shard.ready.push_front(part);
      shard.refusal = std::string(response.status().message());
      if (!std::exchange(shard.pausing, true)) pause = &shard.backoff;
    } else if (!response.ok()) {
      if (error_.ok()) error_ = response.status();
    } else if (IsOutcome(response->verdict())) {
      verdict_ = response->verdict();
      GenerationState& generation = *push_.generation;
      generation.encoder.Settle(push_.sequence, verdict_ == proto::ACCEPTED);
      // With a ticket the coordinator has to hear of it first.
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

// Whether a shard's verdict on a part is that on the push. An asynchronous push
// counts when all shards have applied it, not when this one has.
bool PartSender::IsOutcome(proto::Verdict verdict) const {
  return verdict != proto::VERDICT_UNSPECIFIED &&
         !(push_.asynchronous() && verdict == proto::ACCEPTED);
}

}  // namespace holdfast::client
