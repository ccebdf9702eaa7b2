// SPDX-License-Identifier: Apache-2.0

// Workers of a synchronous job (docs/protocol/life_of_a_step.md).
#ifndef HOLDFAST_TESTS_WORLD_SYNCHRONOUS_WORKER_H_
#define HOLDFAST_TESTS_WORLD_SYNCHRONOUS_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "proto/coordinator.pb.h"
#include "tests/world/scripted_worker.h"
#include "tests/world/world.h"

namespace holdfast::sim {

class SynchronousWorker : public ScriptedWorker {
 public:
  using ScriptedWorker::ScriptedWorker;

 protected:
  void OnGeneration() override;
  void OnPlaced() override { PullAll(0); }
  bool has_finished() const override { return finished_; }

 private:
  void PullAll(uint64_t version);
  void PullFrom(uint32_t ps, uint64_t version);
  void OnPulled(uint32_t ps, const proto::PullRequest& request,
                const PullReply& reply);
  void ComputeStep(uint64_t step);
  void NextSeat();
  void EndSeats();
  void TakeTicket();
  void PushSeat(const Batch& batch);
  void SendParts(uint64_t sequence, const Batch& batch, uint32_t from_ps,
                 uint32_t to_ps, std::function<void()> next);
  void SendPart(uint32_t ps, const PushPart& part, std::function<void()> next);
  proto::ContributeRequest OfferOf(uint64_t sequence, const Batch& batch) const;
  void OfferSeat(uint64_t sequence, const Batch& batch);
  // Offers a push that only the first `held_by` shards hold.
  void OfferUnheld(uint64_t sequence, const Batch& batch, uint32_t held_by);
  void OnVerdict(uint64_t sequence, proto::Verdict verdict);
  void SendOffer(const proto::ContributeRequest& request);
  void NextWhenTold();

  // Whether the worker has the last version.
  bool finished_ = false;
  std::map<uint32_t, uint64_t> pulled_;
  float loss_scale_ = 0;
  uint64_t step_ = 0;
  uint32_t seat_ = 0;
  uint64_t sequence_ = 0;
  // The ticket that is held while a newer version is pulled for it.
  std::optional<uint64_t> ticket_;
  std::set<uint64_t> told_;
  uint64_t acked_through_ = 0;
  int outstanding_ = 0;
  // The receipts of the push under way, by ps.
  std::vector<uint64_t> receipts_;
  int open_offers_ = 0;
  bool pushed_all_ = false;
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_SYNCHRONOUS_WORKER_H_
