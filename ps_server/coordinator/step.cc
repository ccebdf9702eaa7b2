// SPDX-License-Identifier: Apache-2.0
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
      seats_(std::max(replicas_to_aggregate, total_num_replicas)) {}

std::optional<uint32_t> Step::SeatOf(const PushId& push,
                                     uint32_t replica) const {
  for (uint32_t seat = replica; seat < num_seats();
       seat += total_num_replicas_) {
    if (seats_[seat].has_value() && seats_[seat]->push == push) return seat;
  }
  return std::nullopt;
}

void Step::Fill(uint32_t seat, SeatOffer offer) {
  seats_[seat] = std::move(offer);
  ++num_offers_;
}

void Step::Vacate(const WorkerLife& life) {
  for (std::optional<SeatOffer>& seat : seats_) {
    if (!seat.has_value() || !(seat->push.from == life)) continue;
    seat.reset();
    --num_offers_;
  }
}

std::vector<uint32_t> Step::MissingReplicas() const {
  std::set<uint32_t> missing;
  for (uint32_t seat = 0; seat < num_seats(); ++seat) {
    if (!seats_[seat].has_value()) missing.insert(OwnerOf(seat));
  }
  return {missing.begin(), missing.end()};
}

void Step::FillIn(proto::Consistency::Aggregation aggregation,
                  proto::CommitRequest* commit) const {
  std::vector<MeanTerm> terms;
  terms.reserve(num_offers_);
  for (const std::optional<SeatOffer>& offer : seats_) {
    if (!offer.has_value()) continue;
    terms.push_back({offer->examples, offer->clip_factor});
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
  for (uint32_t seat = 0; seat < num_seats(); ++seat) {
    if (!seats_[seat].has_value()) continue;
    const PushId& push = seats_[seat]->push;
    proto::StepContribution& contribution = *commit->add_contributions();
    contribution.set_seat(seat);
    contribution.mutable_worker()->set_job(push.from.worker.job);
    contribution.mutable_worker()->set_index(push.from.worker.index);
    contribution.set_incarnation(push.from.incarnation.value());
    contribution.set_sequence(push.sequence.value());
    contribution.set_weight(weights.weights[i]);
    contribution.set_share(shares.weights[i]);
    ++i;
  }
}

}  // namespace holdfast
