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
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/reply.h"
#include "google/protobuf/message.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/shard_messages.h"
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
inline constexpr absl::Duration kLease = absl::Seconds(4);
// Rounds after which what is reborn late comes, and the latest of messages:
// whoever was to be given up has been given up.
inline constexpr int kLate = 7;

// When a message comes that is held up.
struct Delay {
  // Places in the canonical order, in links of the chain that led to it.
  int hops = 0;
  // 1: when nothing else is in flight; 1 + n: n rounds later.
  int hold = 0;
};

// Something that may happen. All but kNext are deviations from the canonical
// order.
struct Choice {
  enum Kind {
    // The message at the head; where none may be delivered: messages that were
    // held up arrive, what is dead is reborn, or a second passes.
    kNext,
    // Message `id` overtakes those before it.
    kDeliver,
    // The message at the head is held up.
    kSlow,
    // A second passes while messages are in flight.
    kTime,
    // The message at the head, or its answer, does not arrive: its caller hears
    // UNAVAILABLE.
    kLose,
    // It arrives, and after `delay` again.
    kTwice,
    // Its caller hears DEADLINE_EXCEEDED, and it arrives after `delay`.
    kLateArrival,
    // `process` dies; it is reborn after `rounds`, 0 is when nothing is in
    // flight.
    kCrash,
    // `process`, a worker, leaves, exits, and is reborn.
    kStepDown,
    // The lease of `process` runs out although it lives.
    kExpire,
    // What the message at the head asks of the disk fails: before (rounds 0) or
    // after (1) it was done.
    kDiskFails,
  };
  Kind kind = kNext;
  uint64_t id = 0;
  Delay delay;
  Process process = kPs0;
  int rounds = 0;

  std::string ToString() const;
};

// What still may happen on one path.
struct Budget {
  // kDeliver, kSlow, kTime.
  int orders = 0;
  // kLose, kTwice, kLateArrival.
  int messages = 0;
  // kCrash, kStepDown.
  int crashes = 0;
  int expiries = 0;
  int disk = 0;

  bool Covers(const Budget& other) const;
  bool any() const { return !Budget().Covers(*this); }
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
  Delay delay;
};

// What worker 1 does that no worker may do, once in a job. All of it is to be
// refused, and to harm nobody else.
enum class Misdeed {
  kNone,
  // Offers a push that only ps 0 holds; then has the other hold it.
  kOffersUnheld,
  // Has ps 0 apply a push that only it holds; then has the other hold it.
  kAppliesUnheld,
  // Has ps 0 apply a push with a learning rate that is not the ticket's; then
  // with that.
  kWrongScalars,
  // Tells a push as spent that no shard has, or that only ps 0 has applied.
  kClaimsUnapplied,
  kClaimsHalfApplied,
  // Not once, but always: says to ps 0 that it knows all verdicts before the
  // push.
  kAcknowledgesAll,
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
  Misdeed misdeed = Misdeed::kNone;
  RpcFault fault;
  // There is no deviation before a worker has heard that variables are there.
  bool starts_undisturbed = false;
  // Of the delays of messages those of 4 hops, and until nothing else is in
  // flight.
  bool few_delays = false;
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
  uint64_t Fingerprint(const Budget& budget) const;
  // Of the outcome: values and journal.
  uint64_t EndFingerprint() const;
  const std::vector<std::string>& trace() const { return trace_; }
  // By name, the calls that were made between processes.
  const std::map<std::string, int>& calls_made() const { return calls_made_; }

  // Clock:
  absl::Time Now() const override { return now_; }

  // ShardLinks, of the coordinator:
  void SetAddress(uint32_t ps, const std::string& address) override {}
  void Send(uint32_t ps, const ShardRequest& request,
            Reply<ShardResponse> reply) override;

  // For the nodes.
  template <typename Request, typename Response>
  using Method = void (Coordinator::*)(const Request&, Reply<Response>);
  template <typename Request, typename Response>
  using AtShard = void (Shard::*)(const Request&, Reply<Response>);
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
               AtShard<Request, Response> method, const Request& request,
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
  // Whether worker 1 does this now.
  bool Misbehaves(uint32_t worker, Misdeed misdeed) const {
    return worker == 1 && job_.misdeed == misdeed && !misdeed_done_;
  }
  void OnMisdeed() { misdeed_done_ = true; }
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
    // It was repeated, or given up by its caller: outlives connections.
    bool stray = false;
    std::function<void()> deliver;
    // The caller hears of an error instead.
    std::function<void(const absl::Status&)> fail;
    // Of a request: arrives, and its answer goes nowhere.
    std::function<void()> deliver_again;
    // For the trace.
    std::string text;
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
    virtual void Fail(World* world, const absl::Status& status) = 0;
  };
  template <typename Response>
  struct OpenCall : CallBase, std::enable_shared_from_this<OpenCall<Response>> {
    Reply<Response> reply;
    void Fail(World* world, const absl::Status& status) override {
      if (this->answered) return;
      world->SendAnswer<Response>(this->shared_from_this(), status);
    }
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
  static std::vector<Node> NodesOf(Process process);
  // Goes over no network: within a process, or between it and the disk.
  static bool IsLocal(Node from, Node to);
  // Whether what one tells the other is delivered in order.
  static bool IsOrdered(Node from, Node to);

  template <typename Request, typename Response>
  void Call(Node from, Node to, const char* rpc, const Request& request,
            std::function<void(const Request&, Reply<Response>)> handler,
            Reply<Response> reply);
  template <typename Response>
  void SendAnswer(const std::shared_ptr<OpenCall<Response>>& call,
                  absl::StatusOr<Response> response);
  std::unique_ptr<Message> NewMessage(Node from, Node to, const char* rpc,
                                      bool is_request);
  static void HoldUp(const Delay& delay, Message* message);
  // Sends it, unless it is the one that has the job's fault.
  void Send(std::unique_ptr<Message> message, CallBase* call);
  std::unique_ptr<Message> CopyOf(const Message& request);

  // In the order of delivery.
  static bool Precedes(const Message& a, const Message& b);
  // One before it has not been delivered.
  bool Waits(const Message& message) const;
  std::vector<const Message*> Deliverable() const;
  bool IsIncluded(const Delay& delay) const;
  const Message* Head() const;
  std::unique_ptr<Message> TakeOut(const Message* message);
  void Deliver(std::unique_ptr<Message> message);
  uint64_t MaxDepth() const;
  void Quiet();
  void PassTime();
  void Crash(Process process, int rounds);
  void Bear(Process process);
  void Expire(Process process);
  void AfterEvent();
  void Trace(const std::string& what);
  static std::string Describe(const Message& message);

  // The promises that are looked at as messages pass.
  void CheckGeneration(uint64_t generation, const char* rpc);
  void CheckState(const proto::JobState& state, const char* rpc);
  void CheckDurable(uint64_t step, const char* rpc);
  template <typename Response>
  void CheckAnswer(const char* rpc, const Response& response);
  void Check(const std::string& broken) {
    if (!broken.empty()) Violate(broken);
  }
  void CheckShards();
  void CheckEnd();

  const Job job_;
  Directory directory_;
  const bool tracing_;
  std::vector<std::string> trace_;
  std::string violation_;
  bool finished_ = false;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  int rounds_ = 0;
  int events_ = 0;
  bool variables_ready_ = false;
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
  bool misdeed_done_ = false;
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
};

// ---- The rest is templates ----

namespace internal {

template <typename T, typename = void>
struct HasSender : std::false_type {};
template <typename T>
struct HasSender<T, std::void_t<decltype(std::declval<const T&>().sender())>>
    : std::true_type {};
template <typename T, typename = void>
struct HasGeneration : std::false_type {};
template <typename T>
struct HasGeneration<
    T, std::void_t<decltype(std::declval<const T&>().generation())>>
    : std::true_type {};
template <typename T, typename = void>
struct HasState : std::false_type {};
template <typename T>
struct HasState<T, std::void_t<decltype(std::declval<const T&>().state())>>
    : std::true_type {};
template <typename T, typename = void>
struct HasDurableStep : std::false_type {};
template <typename T>
struct HasDurableStep<
    T, std::void_t<decltype(std::declval<const T&>().durable_step())>>
    : std::true_type {};

}  // namespace internal

template <typename Response>
void World::CheckAnswer(const char* rpc, const Response& response) {
  if constexpr (std::is_same_v<Response, PullReply>) {
    CheckGeneration(response.generation.value(), rpc);
    CheckState(response.state, rpc);
  }
  if constexpr (internal::HasGeneration<Response>::value) {
    CheckGeneration(response.generation(), rpc);
  }
  if constexpr (internal::HasState<Response>::value) {
    CheckState(response.state(), rpc);
  }
  if constexpr (internal::HasDurableStep<Response>::value) {
    CheckDurable(response.durable_step(), rpc);
  }
}

template <typename Request, typename Response>
void World::Call(Node from, Node to, const char* rpc, const Request& request,
                 std::function<void(const Request&, Reply<Response>)> handler,
                 Reply<Response> reply) {
  if constexpr (internal::HasSender<Request>::value) {
    if (from == kCoordinator)
      CheckGeneration(request.sender().generation(), rpc);
  }
  auto call = std::make_shared<OpenCall<Response>>();
  call->from = from;
  call->to = to;
  call->rpc = rpc;
  call->from_life = nodes_[from].life;
  call->reply = std::move(reply);
  calls_.push_back(call);
  const auto sent = std::make_shared<const Request>(request);
  std::unique_ptr<Message> message = NewMessage(from, to, rpc, true);
  if constexpr (std::is_base_of_v<google::protobuf::Message, Request>) {
    if (tracing_) message->text = request.ShortDebugString();
  }
  message->deliver = [this, call, sent, handler] {
    NodeState& node = nodes_[call->to];
    if (!node.alive) {
      return call->Fail(this, absl::UnavailableError("nobody listens"));
    }
    call->taken_by = node.life;
    handler(*sent,
            [this, call, life = node.life](absl::StatusOr<Response> response) {
              if (nodes_[call->to].life != life) return;
              if (response.ok()) CheckAnswer(call->rpc, *response);
              if (!call->answered)
                SendAnswer<Response>(call, std::move(response));
            });
  };
  message->deliver_again = [this, to, rpc, sent, handler] {
    if (!nodes_[to].alive) return;
    handler(*sent, [this, to, rpc,
                    life = nodes_[to].life](absl::StatusOr<Response> response) {
      if (nodes_[to].life != life) return;
      if (response.ok()) CheckAnswer(rpc, *response);
    });
  };
  message->fail = [this, call](const absl::Status& status) {
    call->Fail(this, status);
  };
  Send(std::move(message), call.get());
}

template <typename Response>
void World::SendAnswer(const std::shared_ptr<OpenCall<Response>>& call,
                       absl::StatusOr<Response> response) {
  call->answered = true;
  if (call->answer_is_lost) {
    response = absl::UnavailableError("the answer was lost");
  }
  std::unique_ptr<Message> message =
      NewMessage(call->to, call->from, call->rpc, false);
  if (call->answer_is_held) message->hold = 1;
  auto kept = std::make_shared<absl::StatusOr<Response>>(std::move(response));
  if (tracing_) {
    message->text = kept->status().ToString();
    if constexpr (std::is_base_of_v<google::protobuf::Message, Response>) {
      if (kept->ok()) message->text = (*kept)->ShortDebugString();
    }
  }
  message->deliver = [this, call, kept] {
    const NodeState& node = nodes_[call->from];
    if (!node.alive || node.life != call->from_life) return;
    call->reply(std::move(*kept));
  };
  message->fail = [kept](const absl::Status& status) { *kept = status; };
  messages_.push_back(std::move(message));
}

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_WORLD_H_
