// SPDX-License-Identifier: Apache-2.0

// A simulated cluster. Its coordinator and shards are the production code; all
// messages between them, the workers and the disk are delivered, lost, repeated
// and held back by a scheduler.
#ifndef HOLDFAST_TESTS_WORLD_WORLD_H_
#define HOLDFAST_TESTS_WORLD_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/protocol/shard_messages.h"
#include "ps_server/reply/reply.h"
#include "ps_server/shard/shard.h"
#include "tests/world/disk.h"
#include "tests/world/exchanges.h"
#include "tests/world/job.h"
#include "tests/world/message.h"
#include "tests/world/oracle.h"
#include "tests/world/scheduler.h"
#include "tests/world/session.h"

namespace holdfast::sim {

WorkerLife LifeOf(const proto::Sender& sender);
WorkerLife LifeOf(const proto::WorkerLife& life);

// SplitMix64's finalizer.
uint64_t Mix(uint64_t a, uint64_t b);

// The program that runs in the process of a worker.
class WorkerProgram {
 public:
  virtual ~WorkerProgram() = default;
  virtual void Start() = 0;
  // Leaves before the end of the job, and exits.
  virtual void StepDown() = 0;
  virtual const proto::Sender& sender() const = 0;
};

// Owns the machines and the messages in flight between them. It decides nothing
// about order or faults; time stands still until the scheduler moves it.
//
// Checks everything that passes. No message names a generation that is not in
// the journal (docs/protocol/recovery.md, R5), says DONE before the last
// checkpoint is on disk [R10], or says that a step is durable before it is.
// Incarnations rise, and a task is admitted only by a call that has just come
// in [L1]. Every call is answered once, and with ABORTED if its generation is
// over [R1]. Values are those of the oracle. The first broken promise is kept.
//
// Two worlds of the same job in which the same messages are delivered in the
// same order are equal.
class World : public Clock, public ShardLinks {
 public:
  using MakeWorker = std::function<std::unique_ptr<WorkerProgram>(
      World* world, Process process, uint32_t index, uint64_t nonce)>;

  // `scheduler` must outlive the world.
  World(const Job& job, Scheduler* scheduler, MakeWorker make_worker);
  ~World() override;

  // ---- Processes ----

  // Starts a new life of the process.
  void Start(Process process);
  // The other ends of open calls hear that connections are broken; messages on
  // their way to other processes arrive.
  void Crash(Process process);
  // Adds a process for worker `index`, to be started with Start.
  Process AddWorker(uint32_t index);
  // Messages to a paused process are processed when it wakes.
  void Pause(Process process);
  void Wake(Process process);
  bool IsAlive(Process process) const { return processes_[process].alive; }
  bool IsPaused(Process process) const { return processes_[process].paused; }
  uint32_t WorkerIndex(Process process) const {
    return processes_[process].index;
  }
  size_t num_processes() const { return processes_.size(); }
  std::string NameOfProcess(Process process) const;
  static std::vector<Node> NodesOf(Process process);
  static Process ProcessOf(Node node);
  // Sets the number of ps with which the cluster will be started again. No
  // process may be alive.
  void SetNumPs(uint32_t num_ps);
  uint32_t num_ps() const { return num_ps_; }
  // Null while the process is dead.
  WorkerProgram* worker(Process process) const {
    return processes_[process].worker.get();
  }
  Coordinator* coordinator() const { return coordinator_.get(); }
  Shard* shard(uint32_t ps) const { return shards_[ps].get(); }
  // For ps other than ps 0.
  const proto::Sender& ps_sender(uint32_t ps) const {
    return ps_sessions_[ps]->sender();
  }

  // ---- Messages ----

  // Sends `request`.
  template <typename Request>
  void Call(Node from, Node to, const Request& request,
            Reply<typename Rpc<Request>::Response> reply);
  // Sends the request as if an earlier life of `from` had sent it; the answer
  // is dropped.
  template <typename Request>
  void SendStray(Node from, Node to, const Request& request);

  const std::vector<std::unique_ptr<Message>>& in_flight() const {
    return messages_;
  }
  // Null if the message is no longer in flight.
  const Message* Find(uint64_t serial) const;
  void Deliver(const Message* message);
  // The caller gets `status` instead of the message or its answer.
  void Fail(const Message* message, const absl::Status& status);
  // Puts a copy of the request in flight, whose answer is dropped. The
  // scheduler is not told.
  Message* Repeat(const Message& request);
  // Lets the scheduler change the message.
  Message* Mutable(const Message* message) {
    return const_cast<Message*>(message);
  }
  // Whether messages stay off the network: within a process, or between a
  // process and the disk.
  static bool IsLocal(Node from, Node to);
  // Whether a message with `tensor_bytes` bytes of tensors can be sent only if
  // they are lent.
  bool MustBeLent(uint64_t tensor_bytes) const {
    return job_.lends && tensor_bytes > sizeof(float);
  }
  // For printing.
  static std::string Describe(const Message& message);
  static std::string NameOfNode(Node node);

  // ---- Time ----

  // Clock:
  absl::Time Now() const override { return now_; }
  void SetTime(absl::Time now) { now_ = now; }
  // The coordinator and the shards look at the clock.
  void Tick();
  // Runs `event` after `delay`, if the current life of `node` has not ended by
  // then.
  void After(Node node, absl::Duration delay, std::function<void()> event);
  // Runs the timers that are due.
  void RunTimers();
  // Records that a node, or every node, has been given `what`.
  void MixIntoHistory(Node node, uint64_t what);
  void MixIntoHistories(uint64_t what);
  // The maximum depth of all nodes and messages.
  uint64_t MaxDepth() const;
  void SetDepths(uint64_t depth);
  // To be called after each action of the scheduler.
  void AfterEvent();

  // ---- For programs and the disk ----

  // The process exits on its own within this event.
  void Exit(Process process, bool for_good);
  bool Misbehaves(uint32_t worker, Misdeed misdeed);
  void OnMisdeed() { misdeed_done_ = true; }
  uint64_t Random(uint64_t below) { return scheduler_->Random(below); }
  Scheduler* scheduler() { return scheduler_; }
  const Job& job() const { return job_; }
  // Processes that start from now on have a job of this many steps. No process
  // may be alive.
  void SetSteps(uint64_t steps);
  // The digest of the job file that workers bring.
  std::string job_digest() const {
    return absl::StrCat("job of ", job_.steps(), " steps");
  }
  Oracle& oracle() { return oracle_; }
  Disk& disk() { return disk_; }
  const Disk& disk() const { return disk_; }

  // ---- Findings ----

  void Violate(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }
  void Check(const std::string& broken) {
    if (!broken.empty()) Violate(broken);
  }
  // Empty if every promise was kept.
  const std::string& violation() const { return violation_; }
  // Whether the job has ended for all processes and will not start again.
  bool finished() const { return finished_; }
  void AddObserver(Observer* observer) { observers_.push_back(observer); }
  // Checks all values after each event of a shard.
  void CheckShardsAtEachEvent() { checks_shards_ = true; }
  proto::GetStatusResponse Status() const;
  proto::JobPhase phase() const {
    return coordinator_ == nullptr ? proto::JOB_PHASE_UNSPECIFIED
                                   : coordinator_->state().phase();
  }
  // The newest values of all variables, read without the network.
  Values ReadAll();
  // The number of calls that machines have taken and not yet answered, by name.
  const std::map<std::string, int>& parked() const { return parked_; }
  // The longest time that a call has waited at a machine.
  absl::Duration longest_wait() const { return longest_wait_; }
  // The number of errors of this code that callers have got.
  int errors_heard(absl::StatusCode code) const {
    const auto found = errors_heard_.find(code);
    return found == errors_heard_.end() ? 0 : found->second;
  }
  // The number of calls that were made over the network, by name.
  const std::map<std::string, int>& calls_made() const { return calls_made_; }
  // The node that got the last message; kNobody if time passed instead.
  static constexpr Node kNobody = -1;
  Node last_to() const { return last_to_; }
  void NoteLast(Node node) { last_to_ = node; }
  // A hash of everything that each node was ever given, in order.
  uint64_t Fingerprint() const;
  // A hash of the values and the journal.
  uint64_t EndFingerprint() const;

  // ShardLinks:
  void SetAddress(uint32_t ps, const std::string& address) override {}
  void Send(uint32_t ps, const ShardRequest& request,
            Reply<ShardResponse> reply) override;

 private:
  template <typename Response>
  class Answer;
  template <typename Request>
  class RequestMessage;
  template <typename Response>
  class TypedCall;
  template <typename Request, typename Response>
  class Debt;
  struct NodeState {
    bool alive = false;
    // Incremented at each start.
    int life = 0;
    // A hash of everything that the node was given.
    uint64_t history = 0;
    uint64_t depth = 0;
    uint64_t sent = 0;
    // Events that arrived while the node is paused.
    std::vector<std::function<void()>> missed;
  };
  struct ProcessState {
    bool alive = false;
    bool paused = false;
    uint32_t index = 0;
    uint64_t nonce = 0;
    std::unique_ptr<WorkerProgram> worker;
  };
  struct Timer {
    absl::Time due;
    uint64_t order;
    Node node;
    int life;
    std::function<void()> event;
  };

  void StartPs(uint32_t ps, uint64_t nonce);
  void Put(std::unique_ptr<Message> message, Node from, Node to,
           const std::string& rpc, bool is_request, OpenCall* call);
  std::unique_ptr<Message> TakeOut(const Message* message);
  // Runs `event` now, or when `node` wakes.
  void Hear(Node node, std::function<void()> event);
  // Passes the request to the machine at `to`.
  template <typename Request>
  void Serve(Node from, Node to, const Request& request,
             Reply<typename Rpc<Request>::Response> reply);
  template <typename Request>
  void OnSent(Node from, Node to, const Request& request);
  template <typename Request>
  void OnArrival(Node from, Node to, const Request& request);
  template <typename Request, typename Response>
  void OnAnswered(Node from, Node to, const Request& request,
                  const Response& response);
  void CheckGeneration(uint64_t generation, const std::string& rpc);
  // Whether the machine at `to` is in a newer generation than the call.
  template <typename Request>
  bool IsOver(Node to, const Request& request) const;
  void CheckState(const proto::JobState& state, const std::string& rpc);
  void CheckDurable(uint64_t step, const std::string& rpc);
  void CheckIncarnation(const proto::RegisterRequest& request,
                        uint64_t incarnation);
  void CheckNobodyWasAdmitted();
  std::map<TaskId, uint64_t> Incarnations() const;
  void CheckShard(uint32_t ps);
  // [L5] Checks a step that was made of fewer contributions.
  void CheckEnoughWorkers();
  void CheckHistory();
  void OnStop(const proto::StopRequest& request);
  void CheckStopped();
  void CheckEnd();
  void NotePlacement(const proto::RestoreRequest& request);

  Job job_;
  Scheduler* const scheduler_;
  const MakeWorker make_worker_;
  uint32_t num_ps_;
  std::string violation_;
  bool finished_ = false;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  Oracle oracle_;
  Disk disk_;
  Exchanges exchanges_;
  std::vector<Observer*> observers_;
  bool checks_shards_ = false;

  std::vector<NodeState> nodes_;
  std::vector<ProcessState> processes_;
  uint64_t next_nonce_ = 1;
  uint64_t next_serial_ = 0;
  Node last_to_ = kNobody;
  std::vector<std::unique_ptr<Message>> messages_;
  std::vector<std::shared_ptr<OpenCall>> calls_;
  std::vector<Timer> timers_;
  uint64_t next_timer_ = 0;
  // The placement of the variables, once they are placed; and for each ps, a
  // request for everything it holds.
  std::vector<proto::Slice> slices_;
  std::vector<proto::PullRequest> everything_;
  // Processes that have exited within the current event.
  std::vector<std::pair<Process, bool>> exits_;
  // Whether a step was made of fewer than N contributions within the current
  // event.
  bool is_short_handed_ = false;
  bool misdeed_done_ = false;
  // Once set, the loss of unanswered calls is no longer reported.
  bool closed_ = false;

  std::map<std::string, int> calls_made_;
  std::map<std::string, int> parked_;
  std::map<absl::StatusCode, int> errors_heard_;
  absl::Duration longest_wait_;
  std::map<TaskId, uint64_t> last_incarnation_;
  // By life of the coordinator, task and nonce.
  std::map<std::tuple<int, TaskId, uint64_t>, uint64_t> incarnations_;
  // The incarnations after the last Register.
  std::map<TaskId, uint64_t> admitted_;

  std::vector<std::unique_ptr<ShardDisk>> shard_disks_;
  std::unique_ptr<Archive> archive_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<Coordinator> coordinator_;
  // By ps; null for ps 0.
  std::vector<std::unique_ptr<Session>> ps_sessions_;
};

// ---- Only templates below ----

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
    : std::is_convertible<decltype(std::declval<const T&>().state()),
                          const proto::JobState&> {};
template <typename T, typename = void>
struct HasDurableStep : std::false_type {};
template <typename T>
struct HasDurableStep<
    T, std::void_t<decltype(std::declval<const T&>().durable_step())>>
    : std::true_type {};

template <typename T>
std::string TextOf(const T& message) {
  if constexpr (kIsProto<T>) {
    return message.ShortDebugString();
  } else if constexpr (std::is_same_v<T, PushPart>) {
    std::string text = absl::StrCat("sequence: ", message.sequence.value(),
                                    " step: ", message.step.value());
    if (message.num_parts > 1) {
      absl::StrAppend(&text, " part: ", message.part, " of ",
                      message.num_parts);
    }
    return text;
  } else if constexpr (std::is_same_v<T, GivenPart>) {
    return message.tensors.empty() ? "" : message.tensors[0].variable;
  } else if constexpr (std::is_same_v<T, PullReply>) {
    return absl::StrCat("generation: ", message.generation.value(),
                        " version: ", message.version.value());
  } else if constexpr (std::is_same_v<T, PushPull>) {
    return message.request.ShortDebugString();
  } else if constexpr (std::is_same_v<T, PushPullReply>) {
    return message.response.ShortDebugString();
  } else {
    return "";
  }
}

// The part of an answer that tells the state of the job.
template <typename T>
const T& SaidBy(const T& response) {
  return response;
}
inline const proto::PushPullResponse& SaidBy(const PushPullReply& reply) {
  return reply.response;
}

template <typename T>
const proto::Sender& SenderOf(const T& request) {
  return request.sender();
}
inline const proto::Sender& SenderOf(const PushPart& part) {
  return part.sender;
}
inline const proto::Sender& SenderOf(const GivenPart& part) {
  return part.sender;
}
inline const proto::Sender& SenderOf(const PushPull& call) {
  return call.request.sender();
}

// Whether a request belongs to one generation. Other calls to the coordinator
// are answered in any generation.
template <typename Request>
inline constexpr bool kIsOfOneGeneration =
    !std::is_same_v<typename Rpc<Request>::Server, Disk> &&
    (!std::is_same_v<typename Rpc<Request>::Server, Coordinator> ||
     std::is_same_v<Request, proto::ContributeRequest> ||
     std::is_same_v<Request, proto::TakeTicketRequest> ||
     std::is_same_v<Request, proto::ReportEvaluationRequest>);

template <typename T, typename = void>
struct HasVerdict : std::false_type {};
template <typename T>
struct HasVerdict<T, std::void_t<decltype(std::declval<const T&>().verdict())>>
    : std::true_type {};

template <typename Response>
bool SaysAborted(const absl::StatusOr<Response>& response) {
  if (!response.ok()) return absl::IsAborted(response.status());
  using Said = std::decay_t<decltype(SaidBy(*response))>;
  if constexpr (HasVerdict<Said>::value) {
    return SaidBy(*response).verdict() == proto::ABORTED;
  } else {
    return false;
  }
}

}  // namespace internal

// The obligation of a machine to answer a call that it has taken, exactly once.
template <typename Request, typename Response>
class World::Debt {
 public:
  using To = std::function<void(absl::StatusOr<Response>)>;
  Debt(World* world, Node from, Node to, std::shared_ptr<const Request> request,
       To answer)
      : world_(world),
        from_(from),
        to_(to),
        life_(world->nodes_[to].life),
        came_(world->now_),
        request_(std::move(request)),
        is_over_(world->IsOver(to, *request_)),
        answer_(std::move(answer)) {
    ++world->parked_[NameOf<Request>()];
  }
  ~Debt() {
    if (paid_ || world_->closed_) return;
    Settle();
    if (world_->nodes_[to_].alive && world_->nodes_[to_].life == life_) {
      world_->Violate(NameOf<Request>() + " is never answered");
    }
  }
  void Pay(absl::StatusOr<Response> response) {
    if (paid_) return world_->Violate(NameOf<Request>() + " is answered twice");
    Settle();
    if (world_->nodes_[to_].life != life_) return;
    if (is_over_ && !internal::SaysAborted(response)) {
      world_->Violate(NameOf<Request>() +
                      " of a generation that is over does not get ABORTED");
    }
    if (response.ok()) world_->OnAnswered(from_, to_, *request_, *response);
    if constexpr (kIsProto<Request>) {
      for (Observer* observer : world_->observers_) {
        observer->OnAnswered(from_, to_, *request_,
                             response.ok() ? BodyOf(*response) : nullptr);
      }
    }
    answer_(std::move(response));
  }

 private:
  void Settle() {
    paid_ = true;
    const auto parked = world_->parked_.find(NameOf<Request>());
    if (--parked->second == 0) world_->parked_.erase(parked);
    world_->longest_wait_ =
        std::max(world_->longest_wait_, world_->now_ - came_);
  }

  World* const world_;
  const Node from_;
  const Node to_;
  const int life_;
  const absl::Time came_;
  const std::shared_ptr<const Request> request_;
  // Whether its generation was over when the call arrived.
  const bool is_over_;
  const To answer_;
  bool paid_ = false;
};

template <typename Response>
class World::TypedCall
    : public OpenCall,
      public std::enable_shared_from_this<TypedCall<Response>> {
 public:
  void Fail(World* world, const absl::Status& status) override {
    if (!answered) SendAnswer(world, status);
  }
  void SendAnswer(World* world, absl::StatusOr<Response> response) {
    answered = true;
    if (answer_is_lost) {
      response = absl::UnavailableError("the answer was lost");
    }
    auto message = std::make_unique<Answer<Response>>(this->shared_from_this(),
                                                      std::move(response));
    if (answer_is_held) message->hold = 1;
    world->Put(std::move(message), to, from, *rpc, false, nullptr);
  }

  Reply<Response> reply;
};

template <typename Response>
class World::Answer : public Message {
 public:
  Answer(std::shared_ptr<TypedCall<Response>> call,
         absl::StatusOr<Response> response)
      : call_(std::move(call)), response_(std::move(response)) {}

  void Deliver(World* world) override {
    const NodeState& node = world->nodes_[to];
    if (!node.alive || node.life != call_->from_life) return;
    if (!response_.ok()) ++world->errors_heard_[response_.status().code()];
    if constexpr (kIsProto<Response>) {
      if (response_.ok()) {
        for (Observer* observer : world->observers_) {
          observer->OnHeard(to, *response_);
        }
      }
    }
    call_->reply(std::move(response_));
  }
  void Fail(World*, const absl::Status& status) override { response_ = status; }
  std::unique_ptr<Message> Repeat() const override { return nullptr; }
  const google::protobuf::Message* body() const override {
    return response_.ok() ? BodyOf(*response_) : nullptr;
  }
  std::string Text() const override {
    return response_.ok() ? internal::TextOf(*response_)
                          : response_.status().ToString();
  }
  uint64_t tensor_bytes() const override {
    return response_.ok() ? TensorBytes(*response_) : 0;
  }

 private:
  const std::shared_ptr<TypedCall<Response>> call_;
  absl::StatusOr<Response> response_;
};

template <typename Request>
class World::RequestMessage : public Message {
 public:
  using Response = typename Rpc<Request>::Response;
  // `call` is null if the answer is dropped.
  RequestMessage(std::shared_ptr<TypedCall<Response>> call,
                 std::shared_ptr<const Request> request)
      : call_(std::move(call)), request_(std::move(request)) {}

  void Deliver(World* world) override {
    if (!world->nodes_[to].alive) {
      return Fail(world, absl::UnavailableError("the process is dead"));
    }
    if (call_ != nullptr) call_->taken_by = world->nodes_[to].life;
    world->OnArrival(from, to, *request_);
    world->Serve<Request>(
        from, to, *request_,
        [debt = std::make_unique<Debt<Request, Response>>(
             world, from, to, request_,
             [world, call = call_](absl::StatusOr<Response> response) {
               if (call != nullptr && !call->answered) {
                 call->SendAnswer(world, std::move(response));
               }
             })](absl::StatusOr<Response> response) {
          debt->Pay(std::move(response));
        });
  }
  void Fail(World* world, const absl::Status& status) override {
    if (call_ != nullptr) call_->Fail(world, status);
  }
  std::unique_ptr<Message> Repeat() const override {
    return std::make_unique<RequestMessage>(nullptr, request_);
  }
  const google::protobuf::Message* body() const override {
    return BodyOf(*request_);
  }
  std::string Text() const override { return internal::TextOf(*request_); }
  uint64_t tensor_bytes() const override { return TensorBytes(*request_); }

 private:
  const std::shared_ptr<TypedCall<Response>> call_;
  const std::shared_ptr<const Request> request_;
};

template <typename Request>
void World::Call(Node from, Node to, const Request& request,
                 Reply<typename Rpc<Request>::Response> reply) {
  using Response = typename Rpc<Request>::Response;
  OnSent(from, to, request);
  auto call = std::make_shared<TypedCall<Response>>();
  call->from = from;
  call->to = to;
  call->rpc = &NameOf<Request>();
  call->from_life = nodes_[from].life;
  call->reply = std::move(reply);
  calls_.push_back(call);
  if (!IsLocal(from, to)) ++calls_made_[NameOf<Request>()];
  Put(std::make_unique<RequestMessage<Request>>(
          call, std::make_shared<const Request>(request)),
      from, to, NameOf<Request>(), true, call.get());
}

template <typename Request>
void World::SendStray(Node from, Node to, const Request& request) {
  auto message = std::make_unique<RequestMessage<Request>>(
      nullptr, std::make_shared<const Request>(request));
  message->stray = true;
  Put(std::move(message), from, to, NameOf<Request>(), true, nullptr);
}

template <typename Request>
void World::Serve(Node from, Node to, const Request& request,
                  Reply<typename Rpc<Request>::Response> reply) {
  using Server = typename Rpc<Request>::Server;
  if constexpr (std::is_same_v<Server, Coordinator>) {
    Rpc<Request>::Serve(coordinator_.get(), request, std::move(reply));
    if constexpr (std::is_same_v<Request, proto::RegisterRequest>) {
      admitted_ = Incarnations();
    }
  } else if constexpr (std::is_same_v<Server, Shard>) {
    Rpc<Request>::Serve(shards_[to - ShardNode(0)].get(), request,
                        std::move(reply));
  } else if constexpr (std::is_same_v<Server, Exchanges>) {
    Rpc<Request>::Serve(&exchanges_, request, std::move(reply));
  } else {
    Rpc<Request>::Serve(&disk_, request, std::move(reply));
  }
}

template <typename Request>
void World::OnSent(Node from, Node to, const Request& request) {
  if constexpr (internal::HasSender<Request>::value) {
    if (from == kCoordinator) {
      CheckGeneration(request.sender().generation(), NameOf<Request>());
    }
  }
  if constexpr (std::is_same_v<Request, proto::RestoreRequest>) {
    Check(oracle_.OnRestore(request, disk_));
    NotePlacement(request);
  }
  if constexpr (std::is_same_v<Request, proto::CommitRequest>) {
    const size_t known = oracle_.steps().size();
    Check(oracle_.OnCommit(request));
    is_short_handed_ =
        is_short_handed_ ||
        (job_.continues() && oracle_.steps().size() > known &&
         request.contributions_size() < static_cast<int>(job_.n()));
  }
  if constexpr (std::is_same_v<Request, proto::EndRequest>) {
    CheckState(request.state(), NameOf<Request>());
  }
  if constexpr (kIsProto<Request>) {
    for (Observer* observer : observers_) observer->OnSent(from, to, request);
  }
}

template <typename Request>
bool World::IsOver(Node to, const Request& request) const {
  if constexpr (std::is_same_v<Request, proto::ReportEvaluationRequest>) {
    // An evaluation belongs to a checkpoint, not to a generation.
    if (request.has_checkpoint()) return false;
  }
  if constexpr (internal::kIsOfOneGeneration<Request>) {
    const Process process = ProcessOf(to);
    const proto::Sender& sender = internal::SenderOf(request);
    // [P5] A request that does not come from the coordinator is refused for
    // that reason first.
    if (sender.task().job() == kPsJob &&
        sender.receiver_nonce() != processes_[process].nonce) {
      return false;
    }
    return sender.generation() < (to == kCoordinator
                                      ? coordinator_->generation()
                                      : shards_[process]->generation())
                                     .value();
  } else {
    return false;
  }
}

template <typename Request>
void World::OnArrival(Node from, Node to, const Request& request) {
  if constexpr (std::is_same_v<Request, proto::RegisterRequest>) {
    CheckNobodyWasAdmitted();
  }
  if constexpr (std::is_same_v<Request, proto::StopRequest>) OnStop(request);
  if constexpr (kIsProto<Request>) {
    for (Observer* observer : observers_) {
      observer->OnArrival(from, to, request);
    }
  }
}

template <typename Request, typename Response>
void World::OnAnswered(Node from, Node to, const Request& request,
                       const Response& response) {
  if constexpr (std::is_same_v<Response, PullReply>) {
    CheckGeneration(response.generation.value(), NameOf<Request>());
    CheckState(response.state, NameOf<Request>());
    if (!response.tensors.empty()) {
      Check(oracle_.CheckPulled(to - ShardNode(0), request, response));
    }
  }
  const auto& said = internal::SaidBy(response);
  using Said = std::decay_t<decltype(said)>;
  if constexpr (internal::HasGeneration<Said>::value) {
    CheckGeneration(said.generation(), NameOf<Request>());
  }
  if constexpr (internal::HasState<Said>::value) {
    CheckState(said.state(), NameOf<Request>());
  }
  if constexpr (internal::HasDurableStep<Said>::value) {
    CheckDurable(said.durable_step(), NameOf<Request>());
    oracle_.OnDurable(said.generation(), said.durable_step());
  }
  if constexpr (std::is_same_v<Request, proto::RegisterRequest>) {
    if (response.incarnation() > 0) {
      CheckIncarnation(request, response.incarnation());
    }
  }
  if constexpr (std::is_same_v<Request, proto::TakeTicketRequest>) {
    if (response.has_ticket()) {
      Check(oracle_.OnTicket(
          response.generation(),
          {LifeOf(request.sender()), PushSequence(request.sequence())},
          response.ticket().index()));
    }
  }
}

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_WORLD_H_
