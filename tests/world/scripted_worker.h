// SPDX-License-Identifier: Apache-2.0

// What synchronous and asynchronous workers that follow the protocol by script
// have in common (L1, L2 and G6 of docs/protocol/recovery.md).
#ifndef HOLDFAST_TESTS_WORLD_SCRIPTED_WORKER_H_
#define HOLDFAST_TESTS_WORLD_SCRIPTED_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/protocol/push_id.h"
#include "tests/world/session.h"
#include "tests/world/world.h"

namespace holdfast::sim {

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
  void Keep(const proto::PullRequest& request, const PullReply& reply);
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
  void BringOtherFact();
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

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_SCRIPTED_WORKER_H_
