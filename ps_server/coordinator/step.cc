#include "ps_server/coordinator/step.h"

#include <algorithm>
#include <set>
#include <utility>

namespace holdfast {

Step::Step(GlobalStep number, uint32_t replicas_to_aggregate,
           uint32_t total_num_replicas)
    : number_(number),
      replicas_to_aggregate_(replicas_to_aggregate),
      total_num_replicas_(total_num_replicas),
      num_seats_(std::max(replicas_to_aggregate, total_num_replicas)) {}

const SeatOffer* Step::Find(uint32_t seat) const {
  const auto it = offers_.find(seat);
  return it == offers_.end() ? nullptr : &it->second;
}

std::optional<uint32_t> Step::SeatOf(const PushId& push) const {
  const auto it = seats_.find(push);
  if (it == seats_.end()) return std::nullopt;
  return it->second;
}

void Step::Fill(uint32_t seat, SeatOffer offer) {
  seats_.emplace(offer.push, seat);
  offers_.emplace(seat, std::move(offer));
}

void Step::Vacate(const WorkerLife& life) {
  const auto is_of = [&](const PushId& push) {
    return !(push.from < life) && !(life < push.from);
  };
  for (auto it = seats_.begin(); it != seats_.end();) {
    if (!is_of(it->first)) {
      ++it;
      continue;
    }
    offers_.erase(it->second);
    seats_.erase(it++);
  }
}

std::vector<uint32_t> Step::MissingReplicas() const {
  std::set<uint32_t> missing;
  for (uint32_t seat = 0; seat < num_seats_; ++seat) {
    if (offers_.count(seat) == 0) missing.insert(OwnerOf(seat));
  }
  return {missing.begin(), missing.end()};
}

std::vector<proto::StepContribution> Step::Contributions() const {
  uint64_t all_examples = 0;
  uint64_t counted_examples = 0;
  for (const auto& [seat, offer] : offers_) {
    all_examples += offer.examples;
    if (offer.clip_factor != 0) counted_examples += offer.examples;
  }
  std::vector<proto::StepContribution> contributions;
  for (const auto& [seat, offer] : offers_) {
    proto::StepContribution contribution;
    contribution.set_seat(seat);
    contribution.mutable_worker()->set_job(offer.push.from.worker.job);
    contribution.mutable_worker()->set_index(offer.push.from.worker.index);
    contribution.set_incarnation(offer.push.from.incarnation.value());
    contribution.set_sequence(offer.push.sequence.value());
    if (offer.examples > 0) {
      contribution.set_weight(
          static_cast<float>(static_cast<double>(offer.clip_factor) *
                             static_cast<double>(offer.examples) /
                             static_cast<double>(all_examples)));
    }
    if (contribution.weight() != 0) {
      contribution.set_share(
          static_cast<float>(static_cast<double>(offer.examples) /
                             static_cast<double>(counted_examples)));
    }
    contributions.push_back(std::move(contribution));
  }
  return contributions;
}

}  // namespace holdfast
