#ifndef HOLDFAST_PS_SERVER_SHARD_SHARD_H_
#define HOLDFAST_PS_SERVER_SHARD_SHARD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/thread_pool.h"
#include "common/job/ids.h"
#include "common/job/job_phase.h"
#include "common/shared_memory/arena.h"
#include "common/tensor/buffer.h"
#include "common/tensor/tensor_piece.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/optimizer/optimizer.h"
#include "ps_server/protocol/ledger.h"
#include "ps_server/protocol/memory_plan.h"
#include "ps_server/protocol/parked_calls.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/protocol/repeated_failure.h"
#include "ps_server/protocol/tensor_messages.h"
#include "ps_server/reply/reply.h"
#include "ps_server/shard/apply_step.h"
#include "ps_server/shard/shard_disk.h"
#include "ps_server/shard/shard_figures.h"
#include "ps_server/shard/shard_state.h"
#include "ps_server/shard/shard_tables.h"
#include "ps_server/shard/staged_pushes.h"
#include "ps_server/shard/wanted_values.h"
#include "ps_server/store/dense_store.h"

namespace holdfast {

// One ps task's share of the state: staged pushes, the ledger of decided ones,
// and the store that Commit, or Apply in asynchronous jobs, brings from one
// version to the next.
//
// A deterministic event machine: messages and clock ticks in, replies out. What
// it does at each is told in docs/protocol/life_of_a_step.md, steps 2 and 5, in
// docs/protocol/asynchronous.md, steps A2, A3 and A5, and in
// docs/protocol/recovery.md, G4, G6 and C2 to C4.
//
// It begins in generation 0, which is none. A call of an older generation than
// its own gets the verdict ABORTED, or that status; one of a newer generation,
// or that comes before the shard has its state, UNAVAILABLE [R1, R2]. So is one
// in the coordinator's name that does not name this life [P5].
//
// Thread-compatible: its owner calls it from one thread at a time. A reply may
// be called from inside any method.
class Shard {
 public:
  struct Options {
    // Index of this ps task.
    uint32_t index = 0;
    // ps tasks of the cluster.
    uint32_t num_ps = 1;
    // With which this process registers: a secret between it and the
    // coordinator, by which that proves who it is.
    uint64_t nonce = 0;
    // That the shard's share of the job may take (memory_plan.h). 0: no limit.
    int64_t memory_limit_bytes = 0;
    // Help with the update of large variables, and with steps and reads of many
    // rows; must outlive the shard. Null: none do.
    ThreadPool* update_threads = nullptr;
    // Memory for values, which processes of this host may read in place; must
    // outlive the shard and all values. Null: private memory.
    SharedArena* arena = nullptr;
    // Told what of the values may be lent, before anybody can read them: the
    // bytes of a version, and how many versions. May be empty.
    std::function<void(uint64_t value_bytes, size_t max_versions)> on_values;
  };

  // `clock` and `disk` must outlive the shard; what `disk` replies is to be
  // handed to the shard as a call of its own, or from inside the call to
  // `disk`. Null: this ps has no checkpoint directory.
  Shard(const Options& options, const Clock* clock, ShardDisk* disk);

  // [G4] Answered when the shard has its state; a failed one may be repeated.
  // Errors: also INVALID_ARGUMENT for a declaration that cannot be;
  // RESOURCE_EXHAUSTED when it needs more than the memory limit; ABORTED when
  // a newer generation has begun meanwhile.
  void Restore(const proto::RestoreRequest& request,
               Reply<proto::RestoreResponse> reply);

  // [G4] Errors are those of the Give method in proto/shard.proto.
  void Give(const GivenPart& part, Reply<proto::GiveResponse> reply);

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
  // whole: the coordinator never sends these [P1].
  void Commit(const proto::CommitRequest& request,
              Reply<proto::CommitResponse> reply);

  void Fence(const proto::FenceRequest& request,
             Reply<proto::FenceResponse> reply);
  // Errors: INTERNAL for a push that is not here whole, or not next in its
  // order: the coordinator never sends these.
  void Resolve(const proto::ResolveRequest& request,
               Reply<proto::ResolveResponse> reply);

  // Errors: INTERNAL when the job is synchronous: nothing is applied there.
  void Hold(const proto::HoldRequest& request,
            Reply<proto::HoldResponse> reply);
  // Errors: INTERNAL when what `request` says to be applied does not make the
  // version that it names: the coordinator never sends this.
  // FAILED_PRECONDITION without a disk; UNAVAILABLE while an earlier share is
  // being written, for memory is kept for one.
  void Save(const proto::SaveRequest& request,
            Reply<proto::SaveResponse> reply);
  // Parks until the share is on disk, or `wait_ms` has passed.
  void AwaitSaved(const proto::AwaitSavedRequest& request,
                  Reply<proto::AwaitSavedResponse> reply);

  // From here on nothing is staged, committed, applied, saved, pinned or
  // parked. A pull is answered with the job's state, when it is DONE with the
  // values too, where they are here; what else comes is ABORTED, with the
  // reason.
  void End(const proto::EndRequest& request, Reply<proto::EndResponse> reply);

  // Answers parked calls whose time is up, and drops pins. Call it some ten
  // times a second.
  void Tick();

  // Phase STARTING until there is state, then TRAINING; after End as it says.
  const proto::JobState& state() const { return state_; }
  Generation generation() const { return generation_; }
  // Of the newest generation; empty before there is one.
  const proto::Declaration& declaration() const { return declaration_; }
  GlobalStep version() const;
  // Bytes of pushes that are staged.
  int64_t staged_bytes() const { return staged_.bytes(); }
  // For people; costs less than a microsecond, and another for each table.
  ShardFigures figures() const;
  // Verdicts that are remembered.
  size_t verdicts_kept() const { return ledger_.size(); }

 private:
  // By the version that they wait for.
  using ParkedPulls = ParkedCalls<uint64_t, PullReply, proto::PullRequest>;
  using ParkedApplies =
      ParkedCalls<PushId, proto::ApplyResponse, proto::ApplyRequest>;
  using ParkedAwaits = ParkedCalls<std::monostate, proto::AwaitSavedResponse>;
  using ParkedRestores = ParkedCalls<std::monostate, proto::RestoreResponse>;
  // The share of a checkpoint that was taken last; none in a new generation.
  struct Share {
    uint64_t number = 0;
    // Absent while it is being written.
    std::optional<absl::StatusOr<proto::DataFile>> outcome;
  };
  static constexpr size_t kMaxParkedAwaits = 1024;
  static constexpr size_t kMaxParkedRestores = 1024;
  // What has been decided on fenced lives of a task: on incarnations up to
  // these.
  struct Fenced {
    Incarnation through;
    Incarnation resolved_through;
  };
  struct Pinned {
    std::shared_ptr<const StoreVersion> version;
    // The tables' at that version.
    std::shared_ptr<const void> rows;
    absl::Time deadline;
  };
  // The pushes that make a step.
  struct StepSum {
    GradientSum dense;
    // By table; empty where there are none.
    std::vector<RowSum> tables;
  };

  // Of each table, with the totals of earlier generations.
  std::vector<proto::TableReport> TableReports() const;
  // Adds the bytes of `tensors` to `bytes`.
  static void Count(const std::vector<TensorPiece>& tensors,
                    ShardFigures::Bytes* bytes);
  // Whether the sender's generation is over.
  bool IsOver(const proto::Sender& sender) const {
    return sender.generation() < generation_.value();
  }
  // Of a call that must be of the shard's generation, which has state or has
  // ended. Errors: ABORTED, UNAVAILABLE.
  absl::Status CheckGeneration(const proto::Sender& sender) const;
  // The same for one that is ABORTED when the job has ended.
  absl::Status CheckRunning(const proto::Sender& sender) const;
  absl::Status CheckIsCoordinator(const proto::Sender& sender) const;
  // The last two.
  absl::Status CheckFromCoordinator(const proto::Sender& sender) const;
  bool ended() const { return IsEnd(state_.phase()); }
  std::string EndedText() const;

  // Generations and checkpoints (shard_checkpoint.cc).
  absl::Status CheckRestore(const proto::RestoreRequest& request) const;
  // Lets go of all that belongs to the generation before, and tells those who
  // are parked that it is over.
  void Begin(Generation generation);
  void OnLoaded(absl::StatusOr<ShardState> loaded);
  // The generation has its state.
  void OnRestored(std::unique_ptr<DenseStore> store);
  // What a loading that failed with `why` is answered with.
  absl::Status LoadError(const absl::Status& why);
  void OnSaved(absl::StatusOr<proto::DataFile> outcome);
  // As things are.
  proto::RestoreResponse RestoreAnswer() const;
  // What AwaitSaved is answered with, as things are.
  absl::StatusOr<proto::AwaitSavedResponse> SavedAnswer() const;
  void AnswerAwaits(const absl::StatusOr<proto::AwaitSavedResponse>& answer);
  void AnswerLateRestores(absl::Time now);

  // `part` as it is staged, when its tensors fit the declaration.
  absl::StatusOr<StagedPart> Fit(PushPart part) const;
  // That its rows have room, beside those of the pushes that are here. Finds
  // out which of them exist where that matters.
  absl::Status CheckRoom(StagedPart* part);
  absl::StatusOr<GradientPiece> Fit(TensorPiece piece) const;
  proto::PushResponse PushAnswer(proto::Verdict verdict) const;
  proto::ApplyResponse ApplyAnswer(proto::Verdict verdict) const;
  // For a push that was applied here, and is remembered.
  proto::ApplyResponse AppliedAnswer(const PushId& push) const;
  // For a push that waits for an earlier one of its worker.
  proto::ApplyResponse NotYetAnswer(const WorkerLife& from) const;
  // Of a push or its application, as far as the sender alone tells.
  absl::Status CheckMayPush(const WorkerLife& from) const;
  // Errors: FAILED_PRECONDITION, with the sequence that is expected, for one
  // that is further ahead than its worker can be.
  absl::Status CheckSequence(const PushId& push) const;
  // That the scalars are the ticket's [P2] and, where the push changes
  // anything, that every other shard holds it [A3].
  absl::Status CheckReceipts(const proto::ApplyRequest& request,
                             const PushId& push) const;
  // Whether pushes bring this shard anything. Otherwise its values are the same
  // at all versions, it keeps nothing of any push, and no worker needs to tell
  // it of one.
  bool receives() const { return receipts_->receives(options_.index); }
  absl::Status CheckScalars(
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars)
      const;
  bool IsFenced(const WorkerLife& from) const;
  bool IsReserved(const PushId& push) const;
  bool asynchronous() const {
    return declaration_.consistency().has_asynchronous();
  }
  // The next version is this one with `sum`, which has no term of weight 0.
  void PublishNext(
      const StepSum& sum,
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars);
  // Applies the next push of its worker, of which `decision` has all but the
  // staleness.
  // Errors: INTERNAL when it is not here whole.
  absl::Status ApplyNext(
      const PushId& push, Decision decision,
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars);
  // Applies what is not applied here of `applied`, in its order.
  // Errors: INTERNAL when one is not here whole, or not next in its order.
  absl::Status ApplyMissing(
      const google::protobuf::RepeatedPtrField<proto::AppliedPush>& applied);
  // Adds what is kept of a life's applied pushes.
  void AddKept(
      const WorkerLife& life,
      google::protobuf::RepeatedPtrField<proto::AppliedPush>* applied) const;
  bool IsResolved(const WorkerLife& life) const;
  // Applies the push, tells what became of it, or parks the call.
  void ApplyOrPark(const proto::ApplyRequest& request,
                   Reply<proto::ApplyResponse> reply);
  // Goes through the parked applications of a life again, as far as it can be
  // decided on them.
  void RetryApplies(const WorkerLife& from);
  // Adds a push that counts.
  static void AddTo(StepSum* sum, StagedPushes::Whole whole, float weight,
                    float share);
  // Of a version that is pinned: one of its pins, or null.
  const Pinned* FindPin(GlobalStep version) const;
  std::shared_ptr<const StoreVersion> FindVersion(GlobalStep version) const;
  PullReply PullAnswer() const;
  // The slices that are read, by range; of one that is of rows nothing is said.
  // Errors: NOT_FOUND, or INVALID_ARGUMENT, for what cannot be read.
  absl::StatusOr<std::vector<size_t>> FindRanges(
      const proto::PullRequest& request) const;
  absl::StatusOr<PullReply> Read(const proto::PullRequest& request,
                                 const StoreVersion& version);
  // Answers these as things are.
  void Answer(std::vector<ParkedPulls::Call> pulls);
  // Those that wait for no more than the shard's version.
  void AnswerReached();

  const Options options_;
  const Clock* const clock_;
  ShardDisk* const disk_;

  proto::JobState state_;
  // The newest that the shard has been told of.
  Generation generation_;
  // Waiting for the state of `generation_`.
  ParkedRestores parked_restores_{kMaxParkedRestores};
  // The disk has not answered the last Load, which is of `generation_`.
  bool loading_ = false;
  // Tells the reply to the loading that is meant from those to earlier ones.
  uint64_t load_ = 0;
  // Why the last loading failed, when nobody has been told yet.
  std::optional<absl::Status> load_error_;
  // Of the checkpoint of `generation_`.
  RepeatedFailure unreadable_;
  // The disk has not answered the last Save yet, of whichever generation.
  bool writing_ = false;
  absl::Time writing_since_;
  uint64_t next_pin_ = 1;
  // What adds up; what is held now is added by figures().
  ShardFigures totals_;
  // By name, of tables that earlier generations of this process had.
  std::map<std::string, proto::TableReport> table_totals_;

  // What follows belongs to `generation_`: Begin lets go of it.
  proto::Declaration declaration_;
  // Absent before the generation's Restore.
  std::optional<Receipts> receipts_;
  // While first values are lacking, and nothing else is.
  std::optional<WantedValues> wanted_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  MemoryPlan memory_;
  // Null before the generation has its state.
  std::unique_ptr<DenseStore> store_;
  // Read and changed with `store_` alone.
  ShardTables tables_;
  // Of the newest version; 0: the job has none, or gives it with tickets.
  float loss_scale_ = 0;
  StagedPushes staged_;
  Ledger ledger_;
  std::map<TaskId, Fenced> fenced_;
  std::map<uint64_t, Pinned> pins_;
  // Between Hold and Save.
  bool holding_ = false;
  Share share_;
  ParkedPulls parked_pulls_;
  ParkedApplies parked_applies_;
  ParkedAwaits parked_awaits_{kMaxParkedAwaits};
};

// By type of request, what handles the coordinator's messages.
template <typename Request>
inline constexpr auto kShardHandler = nullptr;
template <>
inline constexpr auto kShardHandler<proto::RestoreRequest> = &Shard::Restore;
template <>
inline constexpr auto kShardHandler<proto::CommitRequest> = &Shard::Commit;
template <>
inline constexpr auto kShardHandler<proto::FenceRequest> = &Shard::Fence;
template <>
inline constexpr auto kShardHandler<proto::ResolveRequest> = &Shard::Resolve;
template <>
inline constexpr auto kShardHandler<proto::HoldRequest> = &Shard::Hold;
template <>
inline constexpr auto kShardHandler<proto::SaveRequest> = &Shard::Save;
template <>
inline constexpr auto kShardHandler<proto::AwaitSavedRequest> =
    &Shard::AwaitSaved;
template <>
inline constexpr auto kShardHandler<proto::EndRequest> = &Shard::End;

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_H_
