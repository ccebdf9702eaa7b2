// A book of the tickets of an asynchronous job of one generation, to compare
// with the coordinator's: docs/protocol/asynchronous.md, and A1, A5 and P3 of
// docs/protocol/recovery.md.
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

// What breaks a promise is told to the world.
class TicketWatch : public sim::Observer {
 public:
  TicketWatch(sim::World* world, uint32_t depth, std::optional<uint32_t> bound,
              int64_t most_staged);

  // Call it after each event.
  void AfterEvent();
  // When the job is DONE: all that every shard holds is the pushes that count,
  // and what the coordinator says of them.
  void CheckValues();
  void CheckStatus();

  // Pushes that count: told as spent, or resolved so.
  const std::set<PushId>& counted() const { return counted_; }
  size_t num_given() const { return given_.size(); }
  uint64_t resolved_pushes() const { return resolved_pushes_; }
  // Of all that were told.
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
    // Tickets that are out.
    std::set<PushId> held;
    // Shards that have resolved it.
    std::set<uint32_t> resolved;
  };

  void Expect(bool holds, const PushId& push, const std::string& otherwise);
  // Workers on whom the coordinator counts.
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
  // What was seen within an event, when the coordinator cannot be asked.
  std::vector<std::function<void()>> seen_;
  std::map<WorkerLife, Life> lives_;
  // Whose Fence has been sent.
  std::set<WorkerLife> fenced_;
  std::map<PushId, uint64_t> given_;
  std::set<PushId> counted_;
  // The last push that had it.
  std::map<uint64_t, PushId> holders_;
  // Whose requests for a ticket are parked.
  std::multiset<PushId> waiting_;
  std::map<std::pair<sim::Node, WorkerLife>, int> parked_applies_;
  uint64_t resolved_pushes_ = 0;
  uint64_t max_staleness_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_TICKET_WATCH_H_
