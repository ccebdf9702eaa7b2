// Those who speak to coordinator and shards in a World, each as short as the
// protocol allows: docs/recovery.md (L1, L2, G6), docs/life_of_a_step.md and
// docs/asynchronous.md.
#ifndef HOLDFAST_TESTS_EXPLORATION_WORKER_H_
#define HOLDFAST_TESTS_EXPLORATION_WORKER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "tests/exploration/oracle.h"
#include "tests/exploration/world.h"

namespace holdfast::exploration {

// Registers, and keeps the lease.
class Session {
 public:
  // `on_news` is called after each registration, and when generation or phase
  // are heard to be others.
  Session(World* world, Node node, Process process, const char* job,
          uint32_t index, uint64_t nonce, std::function<void()> on_news);

  void Register();
  const proto::Sender& sender() const { return sender_; }
  proto::JobPhase phase() const { return phase_; }

 private:
  void Renew();

  World* const world_;
  const Node node_;
  const Process process_;
  const uint64_t nonce_;
  const std::function<void()> on_news_;
  proto::Sender sender_;
  proto::JobPhase phase_ = proto::STARTING;
};

// What a ps other than 0 says to the coordinator.
class PsSession {
 public:
  PsSession(World* world, uint64_t nonce)
      : session_(world, kShard1, kPs1, "ps", 1, nonce, [] {}) {}
  void Start() { session_.Register(); }
  const proto::Sender& sender() const { return session_.sender(); }

 private:
  Session session_;
};

// Asks for the status, then for a checkpoint.
class Operator {
 public:
  explicit Operator(World* world) : world_(world) {}
  void Start();

 private:
  void AskForCheckpoint();

  World* const world_;
  std::optional<uint64_t> step_;
};

// A worker that has one seat.
class Worker {
 public:
  Worker(World* world, uint32_t index, uint64_t nonce);
  void Start() { session_.Register(); }
  const proto::Sender& sender() const { return session_.sender(); }
  // Leaves before the end, and exits.
  void StepDown();

 private:
  // An asynchronous push.
  struct Flight {
    uint64_t sequence = 0;
    proto::Ticket ticket;
    std::array<uint64_t, kNumPs> versions = {};
    uint32_t pulled = 0;
    uint32_t acknowledged = 0;
    uint32_t applied = 0;
    uint64_t staleness = 0;
    // By ps: of its acknowledgment, and of its application.
    std::array<uint64_t, kNumPs> held = {};
    std::array<uint64_t, kNumPs> applied_at = {};
  };

  // [G6] What is under way in another generation is dropped.
  void OnNews();
  void Begin();
  void AwaitPlacement();
  // Synchronous.
  void NeedTicket();
  void Pull(uint64_t at_least);
  void OnPulled();
  void Compute();
  void PushTo(uint32_t ps);
  void Contribute();
  void GoOn();
  // Asynchronous.
  void AskForTicket();
  void Launch();
  void OnPushed(uint64_t sequence);
  void PushTo(uint32_t ps, uint64_t sequence);
  void Apply(uint64_t sequence);
  void ApplyAt(uint32_t ps, uint64_t sequence);
  void OnApplied(uint32_t ps, uint64_t sequence,
                 const proto::ApplyResponse& response);
  void OnSpent();
  proto::TakeTicketRequest TicketRequest(uint64_t sequence);
  void OnBooked(const proto::TakeTicketRequest& request);
  // What it may not do.
  void OfferUnheld();
  void ApplyWrongly(uint64_t sequence, bool wrong_scalars,
                    std::function<void()> then);
  void Claim(uint64_t sequence);
  // The end.
  void Evaluate();
  void PinAll();
  void ReadPinned(uint32_t ps);
  void Leave();

  proto::ContributeRequest OfferOf() const;
  proto::ApplyRequest ApplyOf(uint32_t ps, uint64_t sequence) const;
  PushPart MakePart(uint32_t ps, uint64_t sequence, uint64_t version,
                    float gradient) const;
  proto::PullRequest PullOf(uint32_t ps) const;
  // Sends until there is an answer; in this generation. ABORTED is for the
  // session to explain.
  template <typename Request, typename Response>
  void AskCoordinator(const char* rpc, World::Method<Request, Response> method,
                      const Request& request,
                      std::function<void(const Response&)> next);
  template <typename Request, typename Response>
  void AskShard(uint32_t ps, const char* rpc,
                World::AtShard<Request, Response> method,
                const Request& request,
                std::function<void(const Response&)> next);
  void AskPush(uint32_t ps, const PushPart& part,
               std::function<void(const proto::PushResponse&)> next);
  // Whether the answer says that the caller or its generation are over; then
  // `again` is for when the session has not explained it.
  bool IsOver(proto::Verdict verdict, std::function<void()> again);
  // Runs `again` with the next round, if the generation is still this one.
  void Later(std::function<void()> again);
  template <typename Response>
  Reply<Response> Expect(const char* rpc,
                         std::function<void(const Response&)> next,
                         std::function<void()> again);

  World* const world_;
  const uint32_t index_;
  const Node node_;
  Session session_;
  // Who and in which generation what is under way is.
  proto::Sender me_;
  uint64_t epoch_ = 0;
  bool leaving_ = false;
  bool steps_down_ = false;

  uint64_t sequence_ = 0;
  // Synchronous.
  std::optional<uint64_t> ticket_;
  std::array<std::optional<uint64_t>, kNumPs> pulled_;
  Oracle::Pair values_;
  uint64_t version_ = 0;
  std::array<float, kNumPs> gradient_ = {};
  uint32_t acknowledged_ = 0;
  std::array<uint64_t, kNumPs> held_ = {};
  // Asynchronous.
  bool asking_ = false;
  // Told with each request until one is answered.
  std::vector<proto::SpentTicket> spent_;
  std::set<uint64_t> booked_;
  std::map<uint64_t, Flight> flights_;
  // Has a ticket, and waits for its turn.
  std::optional<Flight> next_;
  // The end.
  std::array<proto::PinResponse, kNumPs> pins_;
  uint32_t done_at_end_ = 0;
};

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_WORKER_H_
