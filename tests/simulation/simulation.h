// What the simulations of the protocols share: a network that delays,
// reorders, repeats and loses, the real coordinator and shards behind it,
// processes that die and are born again, and what any worker does beside
// training.
#ifndef HOLDFAST_TESTS_SIMULATION_SIMULATION_H_
#define HOLDFAST_TESTS_SIMULATION_SIMULATION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/reply.h"
#include "common/task_id.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/protocol/shard_messages.h"
#include "ps_server/shard/shard.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/simulated_disk.h"

namespace holdfast {

// Per message, of 1000.
struct Faults {
  int lost = 0;
  int repeated = 0;
};

template <typename Request, typename Response>
using Handler = std::function<void(Request, Reply<Response>)>;

// Carries calls. A request may be lost before it arrives, or its answer after;
// either way the caller hears UNAVAILABLE, as it does of a process that dies
// before it has answered. A repeated request arrives again later, at times much
// later, and its second answer goes nowhere.
class Network {
 public:
  Network(Scheduler* scheduler, const Faults& faults)
      : scheduler_(scheduler), faults_(faults) {}

  template <typename Request, typename Response>
  void Call(Handler<Request, Response> handler, const Request& request,
            Reply<Response> reply) {
    auto caller = std::make_shared<Reply<Response>>(std::move(reply));
    const auto answer = [this, caller](absl::StatusOr<Response> response) {
      auto kept =
          std::make_shared<absl::StatusOr<Response>>(std::move(response));
      scheduler_->Soon([caller, kept] {
        if (*caller == nullptr) return;
        Reply<Response> once = std::move(*caller);
        *caller = nullptr;
        once(std::move(*kept));
      });
    };
    const auto sent = std::make_shared<const Request>(request);
    const auto deliver = [this, handler, sent](auto to) {
      handler(*sent, Owed<Response>(this, to));
    };
    const auto nowhere = [](absl::StatusOr<Response>) {};
    if (scheduler_->Happens(faults_.lost)) {
      scheduler_->After(kNoticed, [answer] {
        answer(absl::UnavailableError("the request was lost"));
      });
      return;
    }
    if (scheduler_->Happens(faults_.lost)) {
      scheduler_->Soon([=] { deliver(nowhere); });
      scheduler_->After(kNoticed, [answer] {
        answer(absl::UnavailableError("the answer was lost"));
      });
      return;
    }
    scheduler_->Soon([=] { deliver(answer); });
    if (scheduler_->Happens(faults_.repeated)) {
      const bool late = scheduler_->Random(4) == 0;
      const absl::Duration after =
          late ? scheduler_->RandomDuration(absl::Seconds(20))
               : absl::ZeroDuration();
      scheduler_->After(after,
                        [=] { scheduler_->Soon([=] { deliver(nowhere); }); });
    }
  }

  // Calls that a machine has taken, and not answered: those that are parked. By
  // the type of their answers.
  const std::map<std::string, int>& unanswered() const { return unanswered_; }
  // Of a call at a machine.
  absl::Duration longest_wait() const { return longest_wait_; }
  // From here on nobody hears of calls that are dropped.
  void Close() { closed_ = true; }

 private:
  // A call that is lost is given up by its caller after so long.
  static constexpr absl::Duration kNoticed = absl::Seconds(2);

  // The answer that a machine owes. One that goes without giving it has died.
  template <typename Response, typename To>
  Reply<Response> Owed(Network* network, To to) {
    struct Debt {
      ~Debt() {
        if (!network->closed_) Pay(absl::UnavailableError("its process died"));
      }
      void Pay(absl::StatusOr<Response> response) {
        if (paid) return;
        paid = true;
        const auto calls = network->unanswered_.find(typeid(Response).name());
        if (--calls->second == 0) network->unanswered_.erase(calls);
        network->longest_wait_ =
            std::max(network->longest_wait_, network->scheduler_->Now() - came);
        to(std::move(response));
      }
      Network* network;
      To to;
      absl::Time came;
      bool paid = false;
    };
    ++unanswered_[typeid(Response).name()];
    return [debt = std::unique_ptr<Debt>(
                new Debt{network, to, scheduler_->Now()})](
               absl::StatusOr<Response> response) mutable {
      EXPECT_FALSE(debt->paid) << "answered twice";
      debt->Pay(std::move(response));
    };
  }

  Scheduler* const scheduler_;
  const Faults faults_;
  std::map<std::string, int> unanswered_;
  absl::Duration longest_wait_;
  bool closed_ = false;
};

// By variable, all its elements.
using Values = std::map<std::string, std::vector<float>>;

size_t NumElements(const proto::Variable& variable);
WorkerLife LifeOf(const proto::Sender& sender);
WorkerLife LifeOf(const proto::WorkerLife& life);

class SimulatedCluster;

// The membership of a process, which it keeps as common/rpc/session.h does.
class SimulatedSession {
 public:
  struct Hooks {
    // All that happens to the process passes through here.
    std::function<void(std::function<void()>)> hear;
    // Its incarnation, or its generation, is another.
    std::function<void(const proto::Sender&)> on_sender;
    std::function<void(const proto::RenewLeaseResponse&)> on_news;
    // It has no place, or none any more. Of a place that is taken yet, it is
    // not told.
    std::function<void(const absl::Status&)> on_refused;
    // Its calls are neither late nor lost.
    bool past_network = false;
  };

  // As `request` says.
  SimulatedSession(SimulatedCluster* cluster,
                   const proto::RegisterRequest& request, Hooks hooks);

  void Start() { Register(); }
  // Nothing more is asked or heard.
  void Stop() { stopped_ = true; }
  const proto::Sender& sender() const { return sender_; }

 private:
  // After `delay`, unless it is stopped by then.
  void After(absl::Duration delay, std::function<void()> event);
  template <typename Request, typename Response>
  void Send(Handler<Request, Response> handler, const Request& request,
            void (SimulatedSession::*next)(const absl::StatusOr<Response>&));
  void Register();
  void OnRegistered(const absl::StatusOr<proto::RegisterResponse>& response);
  void Renew();
  void OnRenewed(const absl::StatusOr<proto::RenewLeaseResponse>& response);

  SimulatedCluster* const cluster_;
  proto::RegisterRequest request_;
  const Hooks hooks_;
  bool stopped_ = false;
  proto::Sender sender_;
  absl::Duration lease_;
  proto::JobPhase phase_ = proto::STARTING;
};

// The machines of one schedule, the network between them and to them, and the
// disk that they share. What the coordinator says to anybody is looked at: it
// names no generation that is not in the journal (docs/recovery.md, R5), says
// DONE only when the last checkpoint is on disk [R10], gives incarnations that
// rise, and admits nobody but by a call that has just come in [L1].
class SimulatedCluster : public ShardLinks {
 public:
  struct Options {
    uint64_t seed = 1;
    Faults faults;
    uint32_t num_ps = 1;
    uint32_t num_workers = 1;
    absl::Duration lease = absl::Seconds(1000);
    // Of each shard. 0: no limit.
    int64_t memory_limit_bytes = 0;
    // Absent: there is none.
    std::optional<SimulatedDisk::Options> disk;
  };

  explicit SimulatedCluster(const Options& options);
  ~SimulatedCluster() override;

  // Has the ps start, and the clocks tick.
  void Start();

  // What workers say to the coordinator, as it arrives there.
  virtual void Register(const proto::RegisterRequest& request,
                        Reply<proto::RegisterResponse> reply);
  virtual void TakeTicket(const proto::TakeTicketRequest& request,
                          Reply<proto::TakeTicketResponse> reply);
  // Of pushes whose requests for a ticket are parked.
  std::multiset<PushId> waiting_for_tickets;

  // A call that has arrived.
  template <typename Request, typename Response>
  void AtCoordinator(void (Coordinator::*method)(const Request&,
                                                 Reply<Response>),
                     const Request& request, Reply<Response> reply) {
    if (coordinator == nullptr) {
      return reply(absl::UnavailableError("ps 0 is dead"));
    }
    (coordinator.get()->*method)(
        request, [this, reply = std::move(reply)](
                     absl::StatusOr<Response> response) mutable {
          if (response.ok()) Watch(*response);
          reply(std::move(response));
        });
  }
  // The same at a shard.
  template <typename Request, typename Response>
  void AtShard(uint32_t ps, void (Shard::*method)(Request, Reply<Response>),
               std::decay_t<Request> request, Reply<Response> reply) {
    if (ps >= shards.size() || shards[ps] == nullptr) {
      return reply(absl::UnavailableError("the ps is dead"));
    }
    (shards[ps].get()->*method)(std::move(request), std::move(reply));
  }

  // ShardLinks:
  void SetAddress(uint32_t ps, const std::string& address) override {}
  void Send(uint32_t ps, const ShardRequest& request,
            Reply<ShardResponse> reply) override;

  // Processes. The coordinator lives in ps 0; without it, nobody has died.
  void StartPs(uint32_t ps);
  void KillPs(uint32_t ps);
  // Sends the leave of another than ps 0, which is to die then.
  void LeavePs(uint32_t ps);
  // The last Restore to the ps comes again, as a message that was on its way.
  void RepeatRestore(uint32_t ps);
  bool IsAlive(uint32_t ps) const {
    return ps < shards.size() && shards[ps] != nullptr;
  }
  // The cluster is to be started with another number; nobody may be alive.
  void SetNumPs(uint32_t num_ps);
  uint32_t num_ps() const { return num_ps_; }

  // Ten times a second.
  virtual void OnTick() {}
  // The coordinator sends this to a shard; a shard has handled it.
  virtual void OnSent(const ShardRequest& request) {}
  virtual void OnHandled(uint32_t ps, const ShardRequest& request) {}
  // An answer holds this ticket, for the first time or again.
  virtual void OnTicket(uint64_t generation, const PushId& push,
                        uint64_t ticket) {}

  proto::GetStatusResponse Status() const;
  proto::JobPhase phase() const {
    return coordinator == nullptr ? proto::JOB_PHASE_UNSPECIFIED
                                  : coordinator->state().phase();
  }
  // The newest values of all variables, read past the network.
  Values ReadAll();

  const Options options;
  Scheduler scheduler;
  Network network;
  // Null without one.
  std::unique_ptr<SimulatedDisk> disk;
  // Where the variables are, once they are.
  std::vector<proto::Slice> slices;
  // Null while ps 0 is dead.
  std::unique_ptr<Coordinator> coordinator;
  // Null where one is dead.
  std::vector<std::unique_ptr<Shard>> shards;
  // By generation: where it went on from. Absent: first values.
  std::map<uint64_t, std::optional<SimulatedDisk::Name>> origins;
  // By generation: the greatest durable step that somebody was told.
  std::map<uint64_t, uint64_t> told_durable;

 private:
  // An answer of the coordinator, as far as it says such things.
  void Watch(const google::protobuf::Message& response);
  void WatchGeneration(uint64_t generation);
  void WatchRestore(uint32_t ps, const proto::RestoreRequest& request);
  void WatchState(const proto::JobState& state);
  void WatchIncarnation(const TaskId& task, uint64_t nonce,
                        uint64_t incarnation);
  // Of the coordinator's sessions.
  std::map<TaskId, uint64_t> Incarnations() const;
  // Since the last Register came in.
  void ExpectNobodyWasAdmitted() const;
  void StartCoordinator();
  void Tick();

  uint32_t num_ps_;
  uint64_t coordinator_life_ = 0;
  uint64_t next_nonce_ = 1000;
  std::map<TaskId, uint64_t> last_incarnation_;
  // By life of the coordinator, and nonce.
  std::map<std::tuple<uint64_t, TaskId, uint64_t>, uint64_t> incarnations_;
  // As they were after the last Register.
  std::map<TaskId, uint64_t> admitted_;
  std::unique_ptr<Archive> archive_;
  // By ps.
  std::map<uint32_t, proto::RestoreRequest> last_restores_;
  std::vector<uint64_t> nonces_;
  std::vector<std::unique_ptr<ShardDisk>> shard_disks_;
  // Of all ps processes that there ever were, the dead ones stopped.
  std::vector<std::unique_ptr<SimulatedSession>> sessions_;
  // By ps, those of the living.
  std::map<uint32_t, SimulatedSession*> ps_sessions_;
};

// What any worker does: keeps its session, declares, learns where the variables
// are, pulls and cuts its pushes into parts. A call that is lost is sent again
// until it is answered; a repeat may come back from any moment before. In a new
// generation it begins anew (docs/recovery.md, G6).
//
// Must live as long as events of the scheduler do.
class SimulatedWorker {
 public:
  // `nonce` is that of its process.
  SimulatedWorker(SimulatedCluster* cluster, uint32_t index, uint64_t nonce);
  virtual ~SimulatedWorker() = default;

  // To OnPlaced(). Waits for its place where that is taken.
  void Start();

  // It is heard of no more.
  void Die();
  // Hears nothing for so long, and then all at once.
  void FallSilent(absl::Duration pause);

  // Dead, shut out, or left.
  bool gone() const { return gone_; }
  // It has heard of the end, and left.
  bool left() const { return left_; }
  uint32_t index() const { return request_.sender().task().index(); }

 protected:
  virtual proto::Declaration MakeDeclaration() const = 0;
  // What it knows of the generation before is over.
  virtual void OnGeneration() {}
  virtual void OnPlaced() = 0;
  // Is told that it has no place any more.
  virtual void OnRefused(const absl::Status& status);
  virtual void OnDone() { Leave(); }
  // All that happens to the worker passes through here.
  virtual void Hear(std::function<void()> event);
  // Its answer has come.
  virtual void OnLeft(const proto::JobState& state);

  // Sends Leave until it is answered; hears nothing else any more.
  void Leave();
  // Its generation is over, or the job; which, its session will hear.
  void Stall() { ++epoch_; }
  // Runs in this generation, or not at all.
  void After(absl::Duration delay, std::function<void()> event);

  // Sends until an answer comes, or an error that tells more than that there is
  // none yet.
  template <typename Request, typename Response>
  void Ask(Handler<Request, Response> handler, const Request& request,
           std::function<void(absl::StatusOr<Response>)> next) {
    Send(
        std::make_shared<const Call<Request, Response>>(Call<Request, Response>{
            std::move(handler), request, std::move(next)}),
        epoch_);
  }
  template <typename Request, typename Response>
  void AskCoordinator(void (Coordinator::*method)(const Request&,
                                                  Reply<Response>),
                      const Request& request,
                      std::function<void(absl::StatusOr<Response>)> next) {
    Ask<Request, Response>(
        [cluster = cluster_, method](Request r, Reply<Response> done) {
          cluster->AtCoordinator(method, r, std::move(done));
        },
        request, std::move(next));
  }
  template <typename Request, typename Response>
  void AskShard(uint32_t ps,
                void (Shard::*method)(const Request&, Reply<Response>),
                const Request& request,
                std::function<void(absl::StatusOr<Response>)> next) {
    Ask<Request, Response>(
        [cluster = cluster_, ps, method](Request r, Reply<Response> done) {
          cluster->AtShard(ps, method, std::move(r), std::move(done));
        },
        request, std::move(next));
  }
  void AskTicket(
      const proto::TakeTicketRequest& request,
      std::function<void(absl::StatusOr<proto::TakeTicketResponse>)> next);
  void AskPush(uint32_t ps, const PushPart& part,
               std::function<void(absl::StatusOr<proto::PushResponse>)> next);

  // For all that `ps` holds.
  proto::PullRequest PullOf(uint32_t ps, uint64_t min_version) const;
  // Keeps the values of a pull.
  void Keep(const PullReply& reply);
  const Values& values() const { return values_; }

  // `gradient` for `ps`, in parts: each slice of more than one element is cut
  // in two, its second half travels with the first one of the next, and bytes
  // are cut inside an element.
  std::vector<PushPart> CutIntoParts(uint32_t ps, const Values& gradient,
                                     PushSequence sequence, GlobalStep step,
                                     PushSequence acked_through) const;

  const proto::Sender& sender() const { return sender_; }
  // Of the placement.
  uint32_t num_ps() const { return num_ps_; }

 private:
  template <typename Request, typename Response>
  struct Call {
    Handler<Request, Response> handler;
    Request request;
    std::function<void(absl::StatusOr<Response>)> next;
  };
  template <typename Request, typename Response>
  void Send(std::shared_ptr<const Call<Request, Response>> call,
            uint64_t epoch) {
    cluster_->network.Call<Request, Response>(
        call->handler, call->request,
        [this, call, epoch](absl::StatusOr<Response> response) {
          auto kept =
              std::make_shared<absl::StatusOr<Response>>(std::move(response));
          Hear([this, call, kept, epoch] {
            if (epoch != epoch_) return;
            if (absl::IsUnavailable(kept->status())) {
              return After(absl::Milliseconds(50), [=] { Send(call, epoch); });
            }
            // Its session is told why.
            if (absl::IsAborted(kept->status()) ||
                absl::IsNotFound(kept->status())) {
              return Stall();
            }
            call->next(std::move(*kept));
          });
        });
  }
  void OnSender(const proto::Sender& sender);
  void OnNews(const proto::RenewLeaseResponse& news);
  void Begin();
  void AwaitPlacement();
  void SendLeave();

  SimulatedCluster* const cluster_;
  proto::RegisterRequest request_;
  SimulatedSession session_;
  proto::Sender sender_;
  // Answers to what was asked in an earlier one are not heard.
  uint64_t epoch_ = 0;
  bool gone_ = false;
  bool leaving_ = false;
  bool left_ = false;
  bool silent_ = false;
  // Heard when it wakes.
  std::vector<std::function<void()>> missed_;
  uint32_t num_ps_ = 0;
  std::map<std::string, proto::Variable> variables_;
  std::map<uint32_t, std::vector<proto::Slice>> by_ps_;
  Values values_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_SIMULATION_H_
