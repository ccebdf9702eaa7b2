// SPDX-License-Identifier: Apache-2.0

// Keeps its own book of the tickets of an asynchronous job of one generation,
// and compares it with the coordinator's: docs/protocol/asynchronous.md, and
// A1, A5 and P3 of docs/protocol/recovery.md.
#ifndef HOLDFAST_TESTS_SIMULATION_TICKET_WATCH_H_
#define HOLDFAST_TESTS_SIMULATION_TICKET_WATCH_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/message.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/protocol/push_id.h"
#include "tests/world/world.h"

namespace holdfast {

// Broken promises are reported to the world.
class TicketWatch : public sim::Observer {
 public:
  TicketWatch(sim::World* world, uint32_t depth, std::optional<uint32_t> bound,
              int64_t most_staged);

  // To be called after each event.
  void AfterEvent();
  // To be called when the job is DONE. Every shard holds exactly the pushes
  // that count, and the status of the coordinator says so.
  void CheckValues();
  void CheckStatus();

  // Pushes that count because they were reported as spent, or resolved as such.
  const std::set<PushId>& counted() const { return counted_; }
  size_t num_given() const { return given_.size(); }
  uint64_t resolved_pushes() const { return resolved_pushes_; }
  // The maximum staleness of all reported pushes.
  uint64_t max_staleness() const { return max_staleness_; }

  void OnSent(sim::Node from, sim::Node to,
              const google::protobuf::Message& request) override;
  void OnArrival(sim::Node from, sim::Node to,
                 const google::protobuf::Message& request) override;
  void OnAnswered(sim::Node from, sim::Node to,
                  const google::protobuf::Message& request,
                  const google::protobuf::Message* response) override;
  void OnHeard(sim::Node by,
               const google::protobuf::Message& response) override;
  void OnTick() override;

 private:
  struct Life {
    // [A1]
    uint64_t clock = 0;
    // Pushes whose tickets are out.
    std::set<PushId> held;
    // Shards that have resolved the pushes of this life.
    std::set<uint32_t> resolved;
  };

  void Expect(bool holds, const PushId& push, const std::string& otherwise);
  // The workers that the coordinator takes to be alive.
  std::set<WorkerLife> LiveOnes() const;
  bool IsLive(const WorkerLife& life) const {
    return LiveOnes().count(life) > 0;
  }
  uint64_t SlowestClock() const;
  // [A1, P3] Whether a live worker may begin this push.
  bool MayBegin(const Life& life, const PushId& push) const;
  void Count(const PushId& push);
  void OnJoined(const WorkerLife& life);
  void OnTaken(const PushId& push, uint64_t ticket);
  const sim::Given& GivenOf(const PushId& push) const {
    return world_->oracle().GivenOf(1, push);
  }

  sim::World* const world_;
  const uint32_t depth_;
  const std::optional<uint32_t> bound_;
  const int64_t most_staged_;
  // Checks deferred to the end of the current event, during which the
  // coordinator cannot be asked.
  std::vector<std::function<void()>> seen_;
  std::map<WorkerLife, Life> lives_;
  // Lives whose Fence has been sent.
  std::set<WorkerLife> fenced_;
  std::map<PushId, uint64_t> given_;
  std::set<PushId> counted_;
  // The last push that had each ticket.
  std::map<uint64_t, PushId> holders_;
  // Pushes whose requests for a ticket are parked.
  std::multiset<PushId> waiting_;
  std::map<std::pair<sim::Node, WorkerLife>, int> parked_applies_;
  uint64_t resolved_pushes_ = 0;
  uint64_t max_staleness_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_TICKET_WATCH_H_
