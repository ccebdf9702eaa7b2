// A cluster so small that what can happen to it can be gone through: two
// shards, one beside the coordinator, two scripted workers and an operator, all
// of whose messages are delivered, lost, repeated and held back by hand. The
// coordinator and the shards are the production code.
#ifndef HOLDFAST_TESTS_EXPLORATION_WORLD_H_
#define HOLDFAST_TESTS_EXPLORATION_WORLD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/reply.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/shard/shard.h"
#include "ps_server/shard/shard_disk.h"
#include "tests/exploration/oracle.h"

namespace holdfast::exploration {

// What gets messages and is deterministic in them.
enum Node {
  kCoordinator,
  kShard0,
  kShard1,
  kWorker0,
  kWorker1,
  kOperator,
  kDisk,
  kNumNodes
};
inline constexpr uint32_t kNumPs = 2;
inline constexpr uint32_t kNumWorkers = 2;

// What dies as a whole. Ps 0 has the coordinator.
enum Process { kPs0, kPs1, kWorkerProcess0, kWorkerProcess1, kNumProcesses };

inline constexpr absl::Duration kRound = absl::Seconds(1);
inline constexpr absl::Duration kLease = 4 * kRound;
// Rounds after which what is reborn late comes, and the latest of messages:
// whoever was to be given up has been given up.
inline constexpr int kLate = 7;

// Something that may happen. All but kNext are deviations from the canonical
// order.
struct Choice {
  enum Kind {
    // The message at the head; where none may be delivered: messages that were
    // held back arrive, what is dead is reborn, or a second passes.
    kNext,
    // Message `id` overtakes those before it.
    kDeliver,
    // All that is in flight overtakes message `id`.
    kBack,
    // A second passes while messages are in flight.
    kTime,
    // The message at the head, or its answer, does not arrive: its caller hears
    // UNAVAILABLE.
    kLose,
    // It arrives, and `rounds` later again: 0 is right after.
    kTwice,
    // Its caller hears DEADLINE_EXCEEDED, and it arrives `rounds` later: 0 is
    // when nothing else is in flight.
    kLateArrival,
    // `process` dies; it is reborn after `rounds`, 0 is when nothing is in
    // flight.
    kCrash,
    // The lease of `process` runs out although it lives.
    kExpire,
    // What the message at the head asks of the disk fails: before (rounds 0) or
    // after (1) it was done.
    kDiskFails,
  };
  Kind kind = kNext;
  uint64_t id = 0;
  Process process = kPs0;
  int rounds = 0;

  std::string ToString() const;
};

// What still may happen on one path.
struct Budget {
  // Deviations in order: kDeliver, kBack, kTime.
  int orders = 0;
  // kLose, kTwice, kLateArrival.
  int messages = 0;
  int crashes = 0;
  int expiries = 0;
  int disk = 0;

  bool Covers(const Budget& other) const;
};

// One fault of one call, for RPCs that are gone through one by one.
struct RpcFault {
  enum Kind {
    kNone,
    kLostBefore,
    kLostAfter,
    kLate,
    kTwice,
    kOutOfOrder,
    kAnswerOutOfOrder
  };
  Kind kind = kNone;
  std::string rpc;
  // Which of the calls of that name, from 1, sent again or not.
  int occurrence = 1;
  // As in Choice.
  int rounds = 0;
};

// What is trained, and what else is done meanwhile.
struct Job {
  std::string name;
  proto::Declaration declaration;
  // Whether there is a checkpoint directory.
  bool archive = true;
  // An operator asks for the status and for a checkpoint when there are
  // variables.
  bool operator_asks = false;
  // Worker 0 pins and reads the last version before it leaves.
  bool evaluates = false;
  // The lease of worker 1 runs out when it has been given this many answers to
  // Apply, although it lives. 0: never.
  int expire_after_applies = 0;
  RpcFault fault;
};

class Worker;
class PsSession;
class Operator;

// Time stands still but for rounds of a second, in which the machines tick and
// callers repeat what they could not send.
//
// Two worlds of one job in which the same choices are taken are the same.
class World : public Clock, public ShardLinks {
 public:
  explicit World(const Job& job, bool trace = false);
  ~World() override;

  // What may happen now beside kNext.
  std::vector<Choice> Alternatives(const Budget& budget) const;
  // Takes it out of the budget, where one is given.
  void Take(const Choice& choice, Budget* budget = nullptr);
  // The job has ended for all, or a promise is broken.
  bool over() const { return finished_ || !violation_.empty(); }
  // Empty: every promise was kept.
  const std::string& violation() const { return violation_; }
  // Two worlds with the same fingerprint have the same future, but for a
  // collision of 64 bits: it is made of all that each node was ever given, in
  // order, and of what is in flight.
  uint64_t Fingerprint() const;
  // Of the outcome: values and journal.
  uint64_t EndFingerprint() const;
  const std::vector<std::string>& trace() const { return trace_; }
  // By name, the calls that were made between processes.
  const std::map<std::string, int>& calls_made() const { return calls_made_; }

  // Clock:
  absl::Time Now() const override { return now_; }

  // ShardLinks, of the coordinator:
  void SetAddress(uint32_t ps, const std::string& address) override {}
  void Restore(uint32_t ps, const proto::RestoreRequest& request,
               Reply<proto::RestoreResponse> reply) override;
  void Commit(uint32_t ps, const proto::CommitRequest& request,
              Reply<proto::CommitResponse> reply) override;
  void Fence(uint32_t ps, const proto::FenceRequest& request,
             Reply<proto::FenceResponse> reply) override;
  void Resolve(uint32_t ps, const proto::ResolveRequest& request,
               Reply<proto::ResolveResponse> reply) override;
  void Hold(uint32_t ps, const proto::HoldRequest& request,
            Reply<proto::HoldResponse> reply) override;
  void Save(uint32_t ps, const proto::SaveRequest& request,
            Reply<proto::SaveResponse> reply) override;
  void AwaitSaved(uint32_t ps, const proto::AwaitSavedRequest& request,
                  Reply<proto::AwaitSavedResponse> reply) override;
  void End(uint32_t ps, const proto::EndRequest& request,
           Reply<proto::EndResponse> reply) override;

  // For the nodes.
  template <typename Request, typename Response>
  using Method = void (Coordinator::*)(const Request&, Reply<Response>);
  template <typename Request, typename Response>
  using ShardMethod = void (Shard::*)(const Request&, Reply<Response>);
  template <typename Request, typename Response>
  void ToCoordinator(Node from, const char* rpc,
                     Method<Request, Response> method, const Request& request,
                     Reply<Response> reply) {
    Call<Request, Response>(
        from, kCoordinator, rpc, request,
        [this, method](const Request& r, Reply<Response> done) {
          (coordinator_.get()->*method)(r, std::move(done));
        },
        std::move(reply));
  }
  template <typename Request, typename Response>
  void ToShard(Node from, uint32_t ps, const char* rpc,
               ShardMethod<Request, Response> method, const Request& request,
               Reply<Response> reply) {
    Call<Request, Response>(
        from, ShardNode(ps), rpc, request,
        [this, ps, method](const Request& r, Reply<Response> done) {
          (shards_[ps].get()->*method)(r, std::move(done));
        },
        std::move(reply));
  }
  void Push(Node from, uint32_t ps, const PushPart& part,
            Reply<proto::PushResponse> reply);
  // Runs `event` with the next round, if `node` lives then.
  void AtNextRound(Node node, std::function<void()> event);
  // The process ends by itself; another is started in its place unless it has
  // nothing more to do.
  void Exit(Process process, bool for_good);
  void OnVariablesReady();
  void OnApplied(uint32_t worker);
  void Violate(const std::string& what);
  const Job& job() const { return job_; }
  Oracle& oracle() { return oracle_; }
  bool asynchronous() const {
    return job_.declaration.consistency().has_asynchronous();
  }

 private:
  friend class WorldArchive;
  friend class WorldShardDisk;

  struct Message {
    uint64_t id = 0;
    Node from = kCoordinator;
    Node to = kCoordinator;
    const char* rpc = "";
    bool is_request = true;
    // The canonical order: how long the chain of messages is that led to it,
    // then the sender, then the order of sending.
    uint64_t depth = 0;
    uint64_t order = 0;
    // Quiet moments that have to pass before it arrives; 0: it is in flight.
    int hold = 0;
    // Those of one are delivered in order. 0: none.
    int channel = 0;
    // It was repeated, or given up by its caller: outlives connections.
    bool stray = false;
    std::function<void()> deliver;
    // The caller hears of an error instead.
    std::function<void(const absl::Status&)> fail;
    // Of a request: makes a copy whose answer goes nowhere.
    std::function<std::unique_ptr<Message>()> copy;
  };
  // A call whose caller has not been answered.
  struct CallBase {
    virtual ~CallBase() = default;
    Node from;
    Node to;
    const char* rpc;
    int from_life = 0;
    // At which it is parked; 0: none.
    int taken_by = 0;
    bool answer_is_lost = false;
    bool answer_is_held = false;
    // An answer is in flight, or has come.
    bool answered = false;
    std::function<void(const absl::Status&)> fail;
  };
  template <typename Response>
  struct OpenCall : CallBase {
    Reply<Response> reply;
  };
  struct NodeState {
    bool alive = false;
    // Rises with each birth.
    int life = 0;
    // Of all that it was given.
    uint64_t history = 0;
    uint64_t depth = 0;
    uint64_t sent = 0;
    std::vector<std::function<void()>> at_next_round;
  };
  struct ProcessState {
    bool alive = false;
    // Has done its work: it is not reborn.
    bool for_good = false;
    // Until it is reborn; 0: when nothing is in flight.
    int rounds_left = 0;
    uint64_t nonce = 0;
  };

  static Node ShardNode(uint32_t ps) { return ps == 0 ? kShard0 : kShard1; }
  static Node WorkerNode(uint32_t index) {
    return index == 0 ? kWorker0 : kWorker1;
  }
  static Process ProcessOf(Node node);
  static std::vector<Node> NodesOf(Process process);
  // Within a process, or to the disk: cannot be lost.
  static bool IsLocal(Node from, Node to);
  static bool IsDisk(Node from, Node to);
  static int ChannelOf(Node from, Node to, const char* rpc);

  template <typename Request, typename Response>
  void Call(Node from, Node to, const char* rpc, const Request& request,
            std::function<void(const Request&, Reply<Response>)> handler,
            Reply<Response> reply);
  template <typename Response>
  void SendAnswer(const std::shared_ptr<OpenCall<Response>>& call,
                  absl::StatusOr<Response> response, uint64_t id);
  void Add(std::unique_ptr<Message> message);
  void ApplyRpcFault(const CallBase* call, Message* message);
  uint64_t NextId(Node from);
  // Of a message of which the network alone knows.
  uint64_t StrayId(uint64_t id);

  // In the order of delivery.
  std::vector<const Message*> Deliverable() const;
  const Message* Head() const;
  std::unique_ptr<Message> TakeOut(const Message* message);
  void Deliver(std::unique_ptr<Message> message);
  void Quiet();
  void PassTime();
  void Crash(Process process, int rounds);
  void Bear(Process process);
  void Expire(Process process);
  void AfterEvent();
  void Trace(const std::string& what);
  std::string Describe(const Message& message) const;

  // The promises that are looked at as messages pass.
  void CheckGeneration(uint64_t generation, const char* rpc);
  void CheckState(const proto::JobState& state, const char* rpc);
  template <typename Response>
  void CheckAnswer(Node from, const char* rpc, const Response& response);
  void CheckShard(uint32_t ps);
  void CheckEnd();
  std::optional<Values> Read(uint32_t ps) const;

  const Job job_;
  const bool tracing_;
  std::vector<std::string> trace_;
  std::string violation_;
  bool finished_ = false;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  int rounds_ = 0;
  int events_ = 0;
  Oracle oracle_;
  std::map<std::string, int> calls_made_;

  std::array<NodeState, kNumNodes> nodes_;
  std::array<ProcessState, kNumProcesses> processes_;
  uint64_t next_nonce_ = 1;
  Node last_to_ = kNumNodes;
  std::vector<std::unique_ptr<Message>> messages_;
  std::vector<std::shared_ptr<CallBase>> calls_;
  // Processes that have ended within the event under way.
  std::vector<std::pair<Process, bool>> exits_;
  int applies_ = 0;
  bool expire_due_ = false;
  // Of the next call to the disk: 1 before it is done, 2 after.
  int disk_fault_ = 0;

  std::array<std::unique_ptr<ShardDisk>, kNumPs> shard_disks_;
  std::unique_ptr<Archive> archive_;
  std::array<std::unique_ptr<Shard>, kNumPs> shards_;
  std::unique_ptr<Coordinator> coordinator_;
  std::array<std::unique_ptr<Worker>, kNumWorkers> workers_;
  std::unique_ptr<PsSession> ps_session_;
  std::unique_ptr<Operator> operator_;
  // By ps: what was looked at last.
  std::array<std::pair<uint64_t, uint64_t>, kNumPs> checked_;
};

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_WORLD_H_
