// SPDX-License-Identifier: Apache-2.0

// Workers of an asynchronous job (docs/protocol/asynchronous.md).
#ifndef HOLDFAST_TESTS_WORLD_ASYNCHRONOUS_WORKER_H_
#define HOLDFAST_TESTS_WORLD_ASYNCHRONOUS_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "tests/world/oracle.h"
#include "tests/world/scripted_worker.h"
#include "tests/world/world.h"

namespace holdfast::sim {

class AsynchronousWorker : public ScriptedWorker {
 public:
  using ScriptedWorker::ScriptedWorker;

 protected:
  void OnGeneration() override;
  void OnPlaced() override { AskForTicket(); }
  bool has_finished() const override { return true; }

 private:
  struct Push {
    uint64_t sequence = 0;
    proto::Ticket ticket;
    float clip_factor = 1;
    // The version that was read, by ps.
    std::map<uint32_t, uint64_t> versions;
    int parts_out = 0;
    std::set<uint32_t> applied;
    uint64_t staleness = 0;
    // Receipts of acknowledgments and of applications, by ps.
    std::map<uint32_t, uint64_t> held;
    std::map<uint32_t, uint64_t> applied_at;
  };

  Given& GivenOf(uint64_t sequence) const {
    return world_->oracle().GivenOf(me().generation(), IdOf(sequence));
  }
  uint32_t depth() const;
  void AskForTicket();
  void SendAsk();
  void Tell(proto::TakeTicketRequest request);
  void OnTold(const proto::TakeTicketRequest& request,
              const proto::TakeTicketResponse& response);
  void WorkOn();
  void Compute(uint64_t sequence);
  void PushTo(uint32_t ps, uint64_t sequence);
  void SendPart(uint32_t ps, const PushPart& part);
  // All parts under way are held.
  void OnHeld(uint64_t sequence);
  void Apply(uint64_t sequence);
  proto::ApplyRequest ApplyOf(uint32_t ps, uint64_t sequence) const;
  // The acked_through of requests to a shard, for verdicts before a push.
  uint64_t AcknowledgedTo(uint32_t ps, uint64_t sequence) const;
  void ApplyWrongly(uint32_t ps, uint64_t sequence, bool wrong_scalars,
                    std::function<void()> then);
  void SendApply(uint32_t ps, uint64_t sequence);
  void OnApplied(uint32_t ps, uint64_t sequence,
                 const proto::ApplyResponse& response);
  // Reports the push as spent, with whatever receipts there are.
  void Claim(uint64_t sequence);

  // All state is of the generation.
  uint64_t sequence_ = 0;
  bool asking_ = false;
  // In the order of sequences.
  std::vector<Push> waiting_;
  std::map<uint64_t, Push> working_;
  std::set<uint64_t> applying_;
  // Spent tickets that are not known to be booked.
  std::map<uint64_t, proto::SpentTicket> spent_;
  std::set<uint64_t> booked_;
  uint64_t acked_through_ = 0;
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_ASYNCHRONOUS_WORKER_H_
