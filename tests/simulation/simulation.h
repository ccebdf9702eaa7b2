// What the simulations of the protocols share: a scheduler that is random by a
// seed, a network that delays, reorders, repeats and loses, the real
// coordinator and shards behind it, and what any worker does before it trains.
#ifndef HOLDFAST_TESTS_SIMULATION_SIMULATION_H_
#define HOLDFAST_TESTS_SIMULATION_SIMULATION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/reply.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/shard/push_id.h"
#include "ps_server/shard/shard.h"

namespace holdfast {

// Events in the order of their time; of the clock too.
class Scheduler : public Clock {
 public:
  explicit Scheduler(uint64_t seed) : random_(seed) {}

  absl::Time Now() const override { return now_; }
  uint64_t Random(uint64_t below) { return random_() % below; }

  void After(absl::Duration delay, std::function<void()> event);
  // After a delay that is mostly short and sometimes long enough to be
  // overtaken by a whole step.
  void Soon(std::function<void()> event);
  // False when there is nothing to run.
  bool RunOne();

 private:
  struct Event {
    absl::Time at;
    uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const;
  };
  std::mt19937_64 random_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t order_ = 0;
  // A heap, the next one on top.
  std::vector<Event> events_;
};

// Per message, of 1000.
struct Faults {
  int lost = 0;
  int repeated = 0;
};

template <typename Request, typename Response>
using Handler = std::function<void(Request, Reply<Response>)>;

// Carries calls. A request may be lost before it arrives, or its answer after;
// either way the caller hears UNAVAILABLE. A repeated request arrives again
// later, and its second answer goes nowhere.
class Network {
 public:
  Network(Scheduler* scheduler, const Faults& faults)
      : scheduler_(scheduler), faults_(faults) {}

  template <typename Request, typename Response>
  void Call(Handler<Request, Response> handler, const Request& request,
            Reply<Response> reply) {
    auto caller = std::make_shared<Reply<Response>>(std::move(reply));
    auto answer = [this, caller](absl::StatusOr<Response> response) {
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
      scheduler_->Soon([this, handler, sent, to] {
        ++unanswered_;
        const absl::Time came = scheduler_->Now();
        handler(*sent, [this, to, came](absl::StatusOr<Response> response) {
          --unanswered_;
          longest_wait_ = std::max(longest_wait_, scheduler_->Now() - came);
          to(std::move(response));
        });
      });
    };
    const auto nowhere = [](absl::StatusOr<Response>) {};
    if (Happens(faults_.lost)) {
      scheduler_->After(absl::Seconds(2), [answer] {
        answer(absl::UnavailableError("the request was lost"));
      });
      return;
    }
    if (Happens(faults_.lost)) {
      deliver(nowhere);
      scheduler_->After(absl::Seconds(2), [answer] {
        answer(absl::UnavailableError("the answer was lost"));
      });
      return;
    }
    deliver(answer);
    if (Happens(faults_.repeated)) deliver(nowhere);
  }

  // Calls that a machine has taken, and not answered: those that are parked.
  int64_t unanswered() const { return unanswered_; }
  // Of a call at a machine.
  absl::Duration longest_wait() const { return longest_wait_; }

 private:
  bool Happens(int of_1000) {
    return scheduler_->Random(1000) < static_cast<uint64_t>(of_1000);
  }

  Scheduler* const scheduler_;
  const Faults faults_;
  int64_t unanswered_ = 0;
  absl::Duration longest_wait_;
};

// By variable, all its elements.
using Values = std::map<std::string, std::vector<float>>;

size_t NumElements(const proto::Variable& variable);
WorkerLife LifeOf(const proto::Sender& sender);
WorkerLife LifeOf(const proto::WorkerLife& life);

// The machines of one schedule, and the network between them and to them.
class SimulatedCluster : public ShardLinks {
 public:
  struct Options {
    uint64_t seed = 1;
    Faults faults;
    uint32_t num_ps = 1;
    uint32_t num_workers = 1;
    // Of workers: the ps never fall silent.
    absl::Duration lease = absl::Seconds(1000);
    // Of each shard. 0: no limit.
    int64_t memory_limit_bytes = 0;
  };

  explicit SimulatedCluster(const Options& options);

  // Has the ps join, and the clocks tick.
  void Start();

  // What workers say to the coordinator, as it arrives there.
  virtual void Register(const proto::RegisterRequest& request,
                        Reply<proto::RegisterResponse> reply);
  virtual void TakeTicket(const proto::TakeTicketRequest& request,
                          Reply<proto::TakeTicketResponse> reply);
  // Of pushes whose requests for a ticket are parked.
  std::multiset<PushId> waiting_for_tickets;

  // Calls over the network.
  template <typename Request, typename Response>
  void ToShard(uint32_t ps,
               void (Shard::*method)(const Request&, Reply<Response>),
               const Request& request, Reply<Response> reply) {
    network.Call<Request, Response>(
        [this, ps, method](Request r, Reply<Response> done) {
          (shards[ps].get()->*method)(r, std::move(done));
        },
        request, std::move(reply));
  }

  // ShardLinks:
  void SetAddress(uint32_t ps, const std::string& address) override {}
  void Create(uint32_t ps, const proto::CreateRequest& request,
              Reply<proto::CreateResponse> reply) override;
  void Commit(uint32_t ps, const proto::CommitRequest& request,
              Reply<proto::CommitResponse> reply) override;
  void Fence(uint32_t ps, const proto::FenceRequest& request,
             Reply<proto::FenceResponse> reply) override;
  void Resolve(uint32_t ps, const proto::ResolveRequest& request,
               Reply<proto::ResolveResponse> reply) override;
  void End(uint32_t ps, const proto::EndRequest& request,
           Reply<proto::EndResponse> reply) override;

  // Ten times a second.
  virtual void OnTick() {}
  // An answer holds this ticket, for the first time or again.
  virtual void OnTicket(const PushId& push, uint64_t ticket) {}

  proto::GetStatusResponse Status() const;
  // The newest values of all variables, read past the network.
  Values ReadAll();

  const Options options;
  // Where the variables are, once they are.
  std::vector<proto::Slice> slices;
  Scheduler scheduler;
  Network network;
  std::unique_ptr<Coordinator> coordinator;
  std::vector<std::unique_ptr<Shard>> shards;

 private:
  void RegisterPs(uint32_t ps);
  void RenewPsLeases();
  void Tick();

  // By ps, from 1.
  std::map<uint32_t, proto::Sender> ps_senders_;
};

// What any worker does: joins, declares, learns where the variables are, pulls
// and cuts its pushes into parts. A call that is lost is sent again until it is
// answered; a repeat may come back from any moment before.
//
// Must live as long as events of the scheduler do.
class SimulatedWorker {
 public:
  // `nonce` is that of its process.
  SimulatedWorker(SimulatedCluster* cluster, uint32_t index, uint64_t nonce);
  virtual ~SimulatedWorker() = default;

  // To OnPlaced(). Waits for its place where that is taken.
  void Start();

 protected:
  virtual proto::Declaration MakeDeclaration() const = 0;
  // Has its incarnation.
  virtual void OnRegistered() {}
  virtual void OnPlaced() = 0;
  // Is told that it has no place any more.
  virtual void OnRefused(const absl::Status& status);
  // All that happens to the worker passes through here.
  virtual void Hear(std::function<void()> event) { event(); }

  // Sends until an answer comes, or another error than UNAVAILABLE.
  template <typename Request, typename Response>
  void Ask(Handler<Request, Response> handler, const Request& request,
           std::function<void(absl::StatusOr<Response>)> next) {
    Send(std::make_shared<const Call<Request, Response>>(
        Call<Request, Response>{std::move(handler), request, std::move(next)}));
  }
  template <typename Request, typename Response>
  void AskCoordinator(void (Coordinator::*method)(const Request&,
                                                  Reply<Response>),
                      const Request& request,
                      std::function<void(absl::StatusOr<Response>)> next) {
    Ask<Request, Response>(
        [cluster = cluster_, method](Request r, Reply<Response> done) {
          (cluster->coordinator.get()->*method)(r, std::move(done));
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
          (cluster->shards[ps].get()->*method)(r, std::move(done));
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
  uint32_t index() const { return sender_.task().index(); }
  uint32_t num_ps() const { return cluster_->options.num_ps; }

 private:
  template <typename Request, typename Response>
  struct Call {
    Handler<Request, Response> handler;
    Request request;
    std::function<void(absl::StatusOr<Response>)> next;
  };
  template <typename Request, typename Response>
  void Send(std::shared_ptr<const Call<Request, Response>> call) {
    cluster_->network.Call<Request, Response>(
        call->handler, call->request,
        [this, call](absl::StatusOr<Response> response) {
          auto kept =
              std::make_shared<absl::StatusOr<Response>>(std::move(response));
          Hear([this, call, kept] {
            if (absl::IsUnavailable(kept->status())) return Send(call);
            call->next(std::move(*kept));
          });
        });
  }
  void Declare();
  void AwaitPlacement();

  SimulatedCluster* const cluster_;
  const uint64_t nonce_;
  proto::Sender sender_;
  std::map<std::string, proto::Variable> variables_;
  std::map<uint32_t, std::vector<proto::Slice>> by_ps_;
  Values values_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_SIMULATION_H_
