// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_STEP_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_STEP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/job/ids.h"
#include "proto/shard.pb.h"
#include "proto/training.pb.h"
#include "ps_server/protocol/push_id.h"

namespace holdfast {

// A push offered to a seat.
struct SeatOffer {
  PushId push;
  uint64_t examples = 0;
  float clip_factor = 1;
  // Set if known.
  std::optional<double> loss;
  // Whether there are no examples because the loss or the gradient was not
  // finite.
  bool not_finite = false;
};

// Returns how many seats a step has for one replica. With N =
// `replicas_to_aggregate` and M = `total_num_replicas`, these are the seats i
// from 0 to max(N, M) - 1 with i mod M = `replica`.
uint32_t NumSeatsOf(uint32_t replica, uint32_t replicas_to_aggregate,
                    uint32_t total_num_replicas);

// The open step: its seats and the offers that fill them.
//
// With N = replicas_to_aggregate and M = total_num_replicas, a step has max(N,
// M) seats; seat i belongs to the worker with replica index i mod M; N offers
// close the step (docs/protocol/life_of_a_step.md, step 4).
//
// Thread-compatible.
class Step {
 public:
  Step(GlobalStep number, uint32_t replicas_to_aggregate,
       uint32_t total_num_replicas);

  GlobalStep number() const { return number_; }
  uint32_t num_seats() const { return static_cast<uint32_t>(seats_.size()); }
  uint32_t OwnerOf(uint32_t seat) const { return seat % total_num_replicas_; }

  // Returns the offer in `seat`, or null if the seat is empty.
  const SeatOffer* Find(uint32_t seat) const {
    return seats_[seat].has_value() ? &*seats_[seat] : nullptr;
  }
  // Returns the seat that `push`, made by `replica`, fills; absent if it fills
  // none.
  std::optional<uint32_t> SeatOf(const PushId& push, uint32_t replica) const;
  void Fill(uint32_t seat, SeatOffer offer);
  // Empties the seats that the pushes of `life` fill.
  void Vacate(const WorkerLife& life);
  size_t num_offers() const { return num_offers_; }
  bool full() const { return num_offers_ >= replicas_to_aggregate_; }

  // The replicas with an empty seat, in order, each once.
  std::vector<uint32_t> MissingReplicas() const;

  // Indexed by seat; empty seats have no value.
  const std::vector<std::optional<SeatOffer>>& seats() const { return seats_; }

  // Fills in the contributions of `commit`: the offers in the order of their
  // seats, with their weights and shares; and the divisors of the two sums
  // (weights.h).
  //
  // MEAN: gradients are averaged by their examples, each scaled by its clip
  // factor. SUM: gradients are added, each scaled by its clip factor; a
  // gradient without examples has weight 0. In both cases, shares average by
  // examples over the offers whose weight is not 0.
  void FillIn(proto::Consistency::Aggregation aggregation,
              proto::CommitRequest* commit) const;

 private:
  GlobalStep number_;
  uint32_t replicas_to_aggregate_;
  uint32_t total_num_replicas_;
  size_t num_offers_ = 0;
  std::vector<std::optional<SeatOffer>> seats_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_STEP_H_
