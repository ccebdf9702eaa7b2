// SPDX-License-Identifier: Apache-2.0

// Workers that follow the protocol by script (docs/protocol/life_of_a_step.md,
// docs/protocol/asynchronous.md, and L1, L2 and G6 of
// docs/protocol/recovery.md), and workers that violate it (Misdeed).
#ifndef HOLDFAST_TESTS_WORLD_WORKER_H_
#define HOLDFAST_TESTS_WORLD_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/protocol/push_id.h"
#include "tests/world/session.h"
#include "tests/world/world.h"

namespace holdfast::sim {

// A SynchronousWorker or an AsynchronousWorker, as the job of the world
// requires.
std::unique_ptr<WorkerProgram> MakeScriptedWorker(World* world, Process process,
                                                  uint32_t index,
                                                  uint64_t nonce);

// What every worker does: it maintains its session, declares, learns where the
// variables are, pulls, cuts its pushes into parts, and leaves. A lost call is
// sent again until it is answered; repeats of it may arrive at any later time.
// In a new generation the worker starts over [G6].
class ScriptedWorker : public WorkerProgram {
 public:
  ScriptedWorker(World* world, Process process, uint32_t index, uint64_t nonce);

  void Start() override { session_.Start(); }
  void StepDown() override;
  const proto::Sender& sender() const override { return session_.sender(); }

 protected:
  // Everything known about the previous generation is void.
  virtual void OnGeneration() = 0;
  virtual void OnPlaced() = 0;
  // Whether the worker has everything it waits for.
  virtual bool has_finished() const = 0;

  // To be called when the job is DONE, and when `has_finished` may have become
  // true.
  void LeaveIfDone();
  // Stops all work, because the generation or the job is over, or the worker is
  // fenced; the session will hear which.
  void Stall() { ++epoch_; }
  // Whether the verdict means that the generation or the life of the worker is
  // over.
  bool IsOver(proto::Verdict verdict);
  // Runs `event` after `delay`, unless the generation is over by then.
  void After(absl::Duration delay, std::function<void()> event);

  // Repeats the request until there is an answer, or an error other than that
  // there is none yet.
  template <typename Request>
  using Next =
      std::function<void(absl::StatusOr<typename Rpc<Request>::Response>)>;
  template <typename Request>
  void Ask(Node to, const Request& request, Next<Request> next) {
    Send(to, std::make_shared<const Request>(request), std::move(next), epoch_);
  }
  // The same for requests to which no worker should get an error.
  template <typename Request>
  void Get(Node to, const Request& request,
           std::function<void(const typename Rpc<Request>::Response&)> next) {
    Ask<Request>(
        to, request,
        [this, next = std::move(next)](
            const absl::StatusOr<typename Rpc<Request>::Response>& response) {
          if (response.ok()) return next(*response);
          world_->Violate(absl::StrCat(NameOf<Request>(), " by worker ", index_,
                                       ": ", response.status().ToString()));
        });
  }

  // A request for everything that `ps` holds.
  proto::PullRequest PullOf(uint32_t ps) const;
  // Keeps the values of a pull.
  void Keep(const PullReply& reply);
  const Values& values() const { return values_; }

  // The parts of `gradient` for `ps`. Each slice of more than one element is
  // cut in two, its second half travels with the first half of the next slice,
  // and the cut falls within an element.
  std::vector<PushPart> CutIntoParts(uint32_t ps, const Values& gradient,
                                     uint64_t sequence, uint64_t step,
                                     uint64_t acked_through) const;

  // The identity and generation that the worker works under.
  const proto::Sender& me() const { return me_; }
  PushId IdOf(uint64_t sequence) const {
    return {LifeOf(me_), PushSequence(sequence)};
  }
  uint32_t num_ps() const { return num_ps_; }
  uint64_t park_ms() const {
    return absl::ToInt64Milliseconds(world_->job().park);
  }
  const Job& job() const { return world_->job(); }

  World* const world_;
  const Process process_;
  const uint32_t index_;
  const Node node_;

 private:
  template <typename Request>
  void Send(Node to, std::shared_ptr<const Request> request, Next<Request> next,
            uint64_t epoch) {
    world_->Call<Request>(
        node_, to, *request,
        [=](absl::StatusOr<typename Rpc<Request>::Response> response) {
          if (epoch != epoch_) return;
          const absl::Status& status = response.status();
          if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
            return After(kRetryAfter, [=] { Send(to, request, next, epoch); });
          }
          if (absl::IsAborted(status) || absl::IsNotFound(status)) {
            return Stall();
          }
          next(std::move(response));
        });
  }
  void OnSender(const proto::Sender& sender);
  void OnPhase(proto::JobPhase phase);
  void Begin();
  void AwaitPlacement();
  // Gives each ps the first values that it wants, one range at a time.
  void GiveAll();
  void Give(uint32_t ps, std::vector<TensorPiece> tensors);
  void OnGiven(uint32_t ps, const proto::GiveResponse& response);
  void PinAll();
  void ReadPinned(uint32_t ps, const proto::PinResponse& pinned);
  void OnRead();
  void Leave();

  static constexpr absl::Duration kRetryAfter = absl::Milliseconds(50);

  Session session_;
  proto::Sender me_;
  // Answers to requests of an earlier epoch are ignored.
  uint64_t epoch_ = 0;
  bool steps_down_ = false;
  bool done_ = false;
  bool leaving_ = false;
  // The generation whose ps have got all values that they wanted.
  uint64_t given_through_ = 0;
  uint32_t satisfied_ = 0;
  uint32_t read_ = 0;
  uint32_t num_ps_ = 0;
  std::map<std::string, proto::Variable> variables_;
  std::map<uint32_t, std::vector<proto::Slice>> by_ps_;
  Values values_;
};

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
  void OnPulled(uint32_t ps, const PullReply& reply);
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

#endif  // HOLDFAST_TESTS_WORLD_WORKER_H_
