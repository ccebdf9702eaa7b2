#ifndef HOLDFAST_PS_SERVER_SHARD_SHARD_H_
#define HOLDFAST_PS_SERVER_SHARD_SHARD_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/reply.h"
#include "common/tensor_piece.h"
#include "proto/shard.pb.h"
#include "ps_server/optimizer/optimizer.h"
#include "ps_server/shard/apply_step.h"
#include "ps_server/shard/ledger.h"
#include "ps_server/shard/memory_plan.h"
#include "ps_server/shard/staged_pushes.h"
#include "ps_server/store/dense_store.h"

namespace holdfast {

// PushRequest with its tensors as buffers.
struct PushPart {
  proto::Sender sender;
  PushSequence sequence;
  GlobalStep step;
  uint32_t part = 0;
  uint32_t num_parts = 1;
  PushSequence acked_through;
  std::vector<TensorPiece> tensors;
};

// PullResponse with its tensors as buffers, which lie in the store.
struct PullReply {
  Generation generation;
  proto::JobState state;
  GlobalStep version;
  std::vector<TensorPiece> tensors;
};

// One ps task's share of the state: staged pushes, the ledger of decided ones,
// and the store that Commit, or Apply in asynchronous jobs, brings from one
// version to the next.
//
// A deterministic event machine: messages and clock ticks in, replies out. What
// it does at each is told in docs/life_of_a_step.md, steps 2 and 5, and in
// docs/asynchronous.md, steps A2, A3 and A5.
//
// Thread-compatible: its owner calls it from one thread at a time. A reply may
// be called from inside any method.
class Shard {
 public:
  struct Options {
    // Index of this ps task.
    uint32_t index = 0;
    Generation generation = Generation(1);
    // That the shard's share of the job may take (memory_plan.h). 0: no limit.
    int64_t memory_limit_bytes = 0;
  };

  // `clock` must outlive the shard.
  Shard(const Options& options, const Clock* clock);

  // Makes the slices of `request` that are placed here, as version 0.
  // Errors: INVALID_ARGUMENT for a declaration that cannot be; ALREADY_EXISTS
  // when another one stands; RESOURCE_EXHAUSTED when it needs more than the
  // memory limit.
  void Create(const proto::CreateRequest& request,
              Reply<proto::CreateResponse> reply);

  // Errors are those of the Push method in proto/shard.proto.
  void Push(PushPart part, Reply<proto::PushResponse> reply);

  // Parks until the worker's pushes before it are decided, or `wait_ms` has
  // passed.
  void Apply(const proto::ApplyRequest& request,
             Reply<proto::ApplyResponse> reply);

  // Parks until the version asked for is there, or `wait_ms` has passed.
  void Pull(const proto::PullRequest& request, Reply<PullReply> reply);

  void Pin(const proto::PinRequest& request, Reply<proto::PinResponse> reply);
  void Unpin(const proto::UnpinRequest& request,
             Reply<proto::UnpinResponse> reply);

  // Errors: INTERNAL for a step ahead of this shard, or a push that is not here
  // whole: the coordinator never sends these.
  void Commit(const proto::CommitRequest& request,
              Reply<proto::CommitResponse> reply);

  void Fence(const proto::FenceRequest& request,
             Reply<proto::FenceResponse> reply);
  // Errors: INTERNAL for a push that is not here whole, or not next in its
  // order: the coordinator never sends these.
  void Resolve(const proto::ResolveRequest& request,
               Reply<proto::ResolveResponse> reply);

  // From here on nothing is staged, committed, applied, pinned or parked. A
  // pull is answered with the job's state, when it is DONE with the values too;
  // what else comes is ABORTED, with the reason.
  void End(const proto::EndRequest& request, Reply<proto::EndResponse> reply);

  // Answers parked calls whose time is up, and drops pins. Call it some ten
  // times a second.
  void Tick();

  // Phase STARTING until Create, then TRAINING until End.
  const proto::JobState& state() const { return state_; }
  GlobalStep version() const;
  // Bytes of pushes that are staged.
  int64_t staged_bytes() const { return staged_.bytes(); }
  // Verdicts that are remembered.
  size_t verdicts_kept() const { return ledger_.size(); }

 private:
  struct ParkedPull {
    proto::PullRequest request;
    Reply<PullReply> reply;
    absl::Time deadline;
  };
  struct ParkedApply {
    proto::ApplyRequest request;
    Reply<proto::ApplyResponse> reply;
    absl::Time deadline;
  };
  // What has been decided on fenced lives of a task: on incarnations up to
  // these.
  struct Fenced {
    Incarnation through;
    Incarnation resolved_through;
  };
  struct Pinned {
    std::shared_ptr<const StoreVersion> version;
    absl::Time deadline;
  };

  absl::Status CheckGeneration(const proto::Sender& sender) const;
  absl::Status CheckFromCoordinator(const proto::Sender& sender) const;
  absl::Status CheckReady() const;
  bool ended() const {
    return state_.phase() == proto::DONE || state_.phase() == proto::FAILED;
  }
  std::string EndedText() const;
  // `part` as it is staged, when its tensors fit the declaration.
  absl::StatusOr<StagedPart> Fit(PushPart part) const;
  absl::StatusOr<GradientPiece> Fit(TensorPiece piece) const;
  proto::PushResponse PushAnswer(proto::Verdict verdict) const;
  proto::ApplyResponse ApplyAnswer(proto::Verdict verdict) const;
  // For a push that waits for an earlier one of its worker.
  proto::ApplyResponse NotYetAnswer(const WorkerLife& from) const;
  // Of a push or its application, as far as the sender alone tells.
  absl::Status CheckMayPush(const WorkerLife& from) const;
  absl::Status CheckScalars(
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars)
      const;
  bool IsFenced(const WorkerLife& from) const;
  bool IsReserved(const PushId& push) const;
  bool asynchronous() const {
    return declaration_.consistency().has_asynchronous();
  }
  // The next version is this one with `gradients`, none of weight 0.
  void PublishNext(
      const std::vector<WeightedGradient>& gradients,
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars);
  // Applies the next push of its worker.
  // Errors: INTERNAL when it is not here whole.
  absl::Status ApplyNext(
      const PushId& push, float clip_factor, uint64_t examples,
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars);
  // Applies the push, tells what became of it, or parks the call.
  void ApplyOrPark(const proto::ApplyRequest& request,
                   Reply<proto::ApplyResponse> reply);
  // Goes through the parked applications of a life again, as far as it can be
  // decided on them.
  void RetryApplies(const WorkerLife& from);
  void AnswerLateApplies(absl::Time now);
  std::shared_ptr<const StoreVersion> FindVersion(GlobalStep version) const;
  PullReply PullAnswer() const;
  absl::StatusOr<PullReply> Read(const proto::PullRequest& request,
                                 const StoreVersion& version) const;
  // Answers the parked pulls that `done` tells to.
  template <typename Done>
  void AnswerParked(Done done);

  const Options options_;
  const Clock* const clock_;
  proto::JobState state_;
  // What the variables were created by.
  proto::Declaration declaration_;
  std::vector<proto::Slice> placement_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::unique_ptr<DenseStore> store_;
  StagedPushes staged_;
  Ledger ledger_;
  std::list<ParkedPull> parked_;
  std::map<PushId, ParkedApply> parked_applies_;
  std::map<TaskId, Fenced> fenced_;
  MemoryPlan memory_;
  std::map<uint64_t, Pinned> pins_;
  uint64_t next_pin_ = 1;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_H_
