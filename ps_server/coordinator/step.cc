#include "ps_server/coordinator/step.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ps_server/coordinator/weights.h"

namespace holdfast {

uint32_t NumSeatsOf(uint32_t replica, uint32_t replicas_to_aggregate,
                    uint32_t total_num_replicas) {
  const uint32_t seats = std::max(replicas_to_aggregate, total_num_replicas);
  return seats / total_num_replicas +
         (replica < seats % total_num_replicas ? 1 : 0);
}

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

void Step::FillIn(proto::Consistency::Aggregation aggregation,
                  proto::CommitRequest* commit) const {
  std::vector<MeanTerm> terms;
  for (const auto& [seat, offer] : offers_) {
    terms.push_back({offer.examples, offer.clip_factor});
  }
  const MeanWeights weights = aggregation == proto::Consistency::SUM
                                  ? WeightsOfSum(terms)
                                  : WeightsOfMean(terms);
  for (size_t i = 0; i < terms.size(); ++i) {
    terms[i] = {weights.weights[i] == 0 ? 0 : terms[i].examples, 1};
  }
  const MeanWeights shares = WeightsOfMean(terms);
  commit->set_weight_divisor(weights.divisor);
  commit->set_share_divisor(shares.divisor);
  size_t i = 0;
  for (const auto& [seat, offer] : offers_) {
    proto::StepContribution& contribution = *commit->add_contributions();
    contribution.set_seat(seat);
    contribution.mutable_worker()->set_job(offer.push.from.worker.job);
    contribution.mutable_worker()->set_index(offer.push.from.worker.index);
    contribution.set_incarnation(offer.push.from.incarnation.value());
    contribution.set_sequence(offer.push.sequence.value());
    contribution.set_weight(weights.weights[i]);
    contribution.set_share(shares.weights[i]);
    ++i;
  }
}

}  // namespace holdfast
