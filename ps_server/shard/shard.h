// SPDX-License-Identifier: Apache-2.0
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
// it does is described in docs/protocol/life_of_a_step.md, steps 2 and 5, in
// docs/protocol/asynchronous.md, steps A2, A3 and A5, and in
// docs/protocol/recovery.md, G4, G6 and C2 to C4.
//
// A shard begins in generation 0, which stands for none. A call of a generation
// older than the shard's gets the verdict ABORTED or, if it is not about a
// push, the status ABORTED. A call of a newer generation, or one that comes
// before the shard has its state, gets the status UNAVAILABLE [R1, R2]. So does
// a call in the coordinator's name that does not carry this shard's nonce [P5].
//
// Thread-compatible: its owner calls it from one thread at a time. A reply may
// be called from inside any method.
class Shard {
 public:
  struct Options {
    // Index of this ps task.
    uint32_t index = 0;
    // The number of ps tasks of the cluster.
    uint32_t num_ps = 1;
    // The nonce with which this process registers: a secret that it shares with
    // the coordinator, by which the coordinator proves its identity.
    uint64_t nonce = 0;
    // Memory limit for the shard's share of the job, in bytes (memory_plan.h).
    // 0: no limit.
    int64_t memory_limit_bytes = 0;
    // Threads that help with updates of large variables, and with steps and
    // reads of many rows; must outlive the shard. May be null.
    ThreadPool* update_threads = nullptr;
    // Shared memory in which values are stored, so that processes of this host
    // may read them in place; must outlive the shard and all values. If null,
    // values are stored in private memory.
    SharedArena* arena = nullptr;
    // Called each time that the shard has a new state, before any values can be
    // read, with the limits on lending values: the size of one version in
    // bytes, and the number of versions. May be empty.
    std::function<void(uint64_t value_bytes, size_t max_versions)> on_values;
  };

  // `clock` and `disk` must outlive the shard. `disk` must be null if this ps
  // has no checkpoint directory. Replies from `disk` must come on the owner's
  // thread, like calls, or from inside the call to `disk`.
  Shard(const Options& options, const Clock* clock, ShardDisk* disk);

  // [G4] Begins a generation, and parks the call until the shard has its state,
  // or `wait_ms` has passed; a failed call may be repeated. Errors: also
  // INVALID_ARGUMENT for an invalid declaration; RESOURCE_EXHAUSTED when it
  // needs more than the memory limit; ABORTED when a newer generation has begun
  // meanwhile.
  void Restore(const proto::RestoreRequest& request,
               Reply<proto::RestoreResponse> reply);

  // [G4] Errors are those of the Give method in proto/shard.proto.
  void Give(const GivenPart& part, Reply<proto::GiveResponse> reply);

  // Errors are those of the Push method in proto/shard.proto.
  void Push(PushPart part, Reply<proto::PushResponse> reply);

  // Parks until the worker's earlier pushes are decided, or `wait_ms` has
  // passed.
  void Apply(const proto::ApplyRequest& request,
             Reply<proto::ApplyResponse> reply);

  // Parks until the version asked for exists, or `wait_ms` has passed.
  void Pull(const proto::PullRequest& request, Reply<PullReply> reply);

  void Pin(const proto::PinRequest& request, Reply<proto::PinResponse> reply);
  void Unpin(const proto::UnpinRequest& request,
             Reply<proto::UnpinResponse> reply);

  // Errors: INTERNAL for a step after the shard's version, or for a push that
  // is not completely here. The coordinator never asks for either [P1].
  void Commit(const proto::CommitRequest& request,
              Reply<proto::CommitResponse> reply);

  void Fence(const proto::FenceRequest& request,
             Reply<proto::FenceResponse> reply);
  // Errors: INTERNAL for a push that is not completely here, or that is not the
  // next one of its worker. The coordinator never asks for either.
  void Resolve(const proto::ResolveRequest& request,
               Reply<proto::ResolveResponse> reply);

  // Errors: INTERNAL when the job is synchronous, because no push is applied
  // there by itself.
  void Hold(const proto::HoldRequest& request,
            Reply<proto::HoldResponse> reply);
  // Errors: INTERNAL when the pushes that `request` lists as applied do not
  // make the version that it names, which the coordinator never asks for.
  // FAILED_PRECONDITION without a disk; UNAVAILABLE while an earlier share is
  // being written, because memory is kept for only one.
  void Save(const proto::SaveRequest& request,
            Reply<proto::SaveResponse> reply);
  // Parks until the share is on disk, or `wait_ms` has passed.
  void AwaitSaved(const proto::AwaitSavedRequest& request,
                  Reply<proto::AwaitSavedResponse> reply);

  // Ends the job at this shard: from then on nothing is staged, committed,
  // applied, saved, pinned or parked. A pull is answered with the job's state
  // and, if the phase is DONE, with the newest values of this shard. Any other
  // call gets ABORTED, with the reason.
  void End(const proto::EndRequest& request, Reply<proto::EndResponse> reply);

  // Answers parked calls that have reached their deadlines, and drops expired
  // pins. Call it about ten times a second.
  void Tick();

  // The phase is STARTING until the shard has its state, and TRAINING from then
  // on; after End it is the phase that End gave.
  const proto::JobState& state() const { return state_; }
  Generation generation() const { return generation_; }
  // The declaration of the newest generation; empty before there is one.
  const proto::Declaration& declaration() const { return declaration_; }
  GlobalStep version() const;
  // Bytes of staged pushes.
  int64_t staged_bytes() const { return staged_.bytes(); }
  // Returns figures for monitoring. Takes less than a microsecond, and up to
  // one more for each table.
  ShardFigures figures() const;
  // The number of verdicts remembered.
  size_t verdicts_kept() const { return ledger_.size(); }

 private:
  // Pulls, keyed by the version that each waits for.
  using ParkedPulls = ParkedCalls<uint64_t, PullReply, proto::PullRequest>;
  using ParkedApplies =
      ParkedCalls<PushId, proto::ApplyResponse, proto::ApplyRequest>;
  using ParkedAwaits = ParkedCalls<std::monostate, proto::AwaitSavedResponse>;
  using ParkedRestores = ParkedCalls<std::monostate, proto::RestoreResponse>;
  // The share of a checkpoint that was taken last. `number` is 0 if none was
  // taken in this generation.
  struct Share {
    uint64_t number = 0;
    // How writing the share ended. Absent while the share is being written.
    std::optional<absl::StatusOr<proto::DataFile>> outcome;
  };
  static constexpr size_t kMaxParkedAwaits = 1024;
  static constexpr size_t kMaxParkedRestores = 1024;
  // The lives of a task up to the incarnation `through` are fenced; those up to
  // `resolved_through` are also resolved (Resolve).
  struct Fenced {
    Incarnation through;
    Incarnation resolved_through;
  };
  struct Pinned {
    std::shared_ptr<const StoreVersion> version;
    // Holds the tables' rows at that version.
    std::shared_ptr<const void> rows;
    absl::Time deadline;
  };
  // The pushes that make up a step.
  struct StepSum {
    GradientSum dense;
    // Indexed by table; empty if there are none.
    std::vector<RowSum> tables;
  };

  // The report of each table, with the totals of earlier generations.
  std::vector<proto::TableReport> TableReports() const;
  // Adds the bytes of `tensors` to `bytes`.
  static void Count(const std::vector<TensorPiece>& tensors,
                    ShardFigures::Bytes* bytes);
  // Whether the sender's generation is older than the shard's.
  bool IsOver(const proto::Sender& sender) const {
    return sender.generation() < generation_.value();
  }
  // Checks that a call names the shard's generation, and that the shard has its
  // state or the job has ended. Errors: ABORTED for an older generation;
  // UNAVAILABLE otherwise.
  absl::Status CheckGeneration(const proto::Sender& sender) const;
  // The same, and that the job has not ended. Errors: ABORTED also if it has.
  absl::Status CheckRunning(const proto::Sender& sender) const;
  absl::Status CheckIsCoordinator(const proto::Sender& sender) const;
  // Both CheckIsCoordinator and CheckRunning.
  absl::Status CheckFromCoordinator(const proto::Sender& sender) const;
  bool ended() const { return IsEnd(state_.phase()); }
  std::string EndedText() const;

  // Generations and checkpoints (shard_checkpoint.cc).
  absl::Status CheckRestore(const proto::RestoreRequest& request) const;
  // Begins `generation`: releases everything that belongs to the previous one,
  // and answers its parked calls with ABORTED.
  void Begin(Generation generation);
  void OnLoaded(absl::StatusOr<ShardState> loaded);
  // Makes `store` the state of the generation, which is then complete.
  void OnRestored(std::unique_ptr<DenseStore> store);
  // The answer for a load that failed with `why`.
  absl::Status LoadError(const absl::Status& why);
  void OnSaved(absl::StatusOr<proto::DataFile> outcome);
  // The answer to a Restore in the current state.
  proto::RestoreResponse RestoreAnswer() const;
  // The answer to AwaitSaved in the current state.
  absl::StatusOr<proto::AwaitSavedResponse> SavedAnswer() const;
  void AnswerAwaits(const absl::StatusOr<proto::AwaitSavedResponse>& answer);
  void AnswerLateRestores(absl::Time now);

  // Returns `part` in the form in which it is staged. Errors: INVALID_ARGUMENT
  // if its tensors do not fit the declaration.
  absl::StatusOr<StagedPart> Fit(PushPart part) const;
  // Checks that the tables have room for the rows of `part`, in addition to
  // those of the pushes that are staged. If there is room only because some of
  // these rows exist already, looks up which ones do.
  absl::Status CheckRoom(StagedPart* part);
  absl::StatusOr<GradientPiece> Fit(TensorPiece piece) const;
  proto::PushResponse PushAnswer(proto::Verdict verdict) const;
  proto::ApplyResponse ApplyAnswer(proto::Verdict verdict) const;
  // The answer for a push that was applied here, from the ledger.
  proto::ApplyResponse AppliedAnswer(const PushId& push) const;
  // The answer for a push that waits for an earlier one of its worker.
  proto::ApplyResponse NotYetAnswer(const WorkerLife& from) const;
  // Checks that the sender of a push or of an Apply may push at all.
  absl::Status CheckMayPush(const WorkerLife& from) const;
  // Errors: FAILED_PRECONDITION, with the sequence that is expected, for a push
  // that is further ahead than its worker can be.
  absl::Status CheckSequence(const PushId& push) const;
  // Checks that the scalars are the ticket's [P2] and, if the push changes
  // anything, that every other shard holds it [A3].
  absl::Status CheckReceipts(const proto::ApplyRequest& request,
                             const PushId& push) const;
  // Whether this shard holds anything trainable. If not, its values are the
  // same at all versions, it keeps nothing of any push, and workers need not
  // send it any part.
  bool receives() const { return receipts_->receives(options_.index); }
  absl::Status CheckScalars(
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars)
      const;
  bool IsFenced(const WorkerLife& from) const;
  bool IsReserved(const PushId& push) const;
  bool asynchronous() const {
    return declaration_.consistency().has_asynchronous();
  }
  // Publishes the next version: the newest one with `sum` applied. `sum` must
  // have no term of weight 0.
  void PublishNext(
      const StepSum& sum,
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars);
  // Applies `push`, which must be the next one of its worker, and records
  // `decision`, which lacks only the staleness. Errors: INTERNAL when the push
  // is not completely here.
  absl::Status ApplyNext(
      const PushId& push, Decision decision,
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars);
  // Applies the pushes in `applied` that are not applied here yet, in the given
  // order. Errors: INTERNAL when one is not completely here, or is not the next
  // one of its worker.
  absl::Status ApplyMissing(
      const google::protobuf::RepeatedPtrField<proto::AppliedPush>& applied);
  // Appends to `*applied` the applied pushes of `life` that the ledger still
  // keeps.
  void AddKept(
      const WorkerLife& life,
      google::protobuf::RepeatedPtrField<proto::AppliedPush>* applied) const;
  bool IsResolved(const WorkerLife& life) const;
  // Applies the push, or answers with its verdict if it is decided, or parks
  // the call until it can be decided.
  void ApplyOrPark(const proto::ApplyRequest& request,
                   Reply<proto::ApplyResponse> reply);
  // Tries the parked Apply calls of a life again, in order, until one cannot be
  // decided yet.
  void RetryApplies(const WorkerLife& from);
  // Adds a push that counts to `*sum`, with its weight and share.
  static void AddTo(StepSum* sum, StagedPushes::Whole whole, float weight,
                    float share);
  // Returns one of the pins of `version`; null if that version is not pinned.
  const Pinned* FindPin(GlobalStep version) const;
  std::shared_ptr<const StoreVersion> FindVersion(GlobalStep version) const;
  PullReply PullAnswer() const;
  // Returns, for each range of the request, the index of the slice that it
  // reads; unspecified for a range of rows. Errors: NOT_FOUND or
  // INVALID_ARGUMENT for a range that cannot be read.
  absl::StatusOr<std::vector<size_t>> FindRanges(
      const proto::PullRequest& request) const;
  absl::StatusOr<PullReply> Read(const proto::PullRequest& request,
                                 const StoreVersion& version);
  // Answers `pulls` according to the current state.
  void Answer(std::vector<ParkedPulls::Call> pulls);
  // Answers the parked pulls that wait for the shard's version or an earlier
  // one.
  void AnswerReached();

  const Options options_;
  const Clock* const clock_;
  ShardDisk* const disk_;

  proto::JobState state_;
  // The newest generation that the shard has been told of.
  Generation generation_;
  // Calls that wait for the state of `generation_`.
  ParkedRestores parked_restores_{kMaxParkedRestores};
  // True while the disk has not answered the last Load, which is for
  // `generation_`.
  bool loading_ = false;
  // Distinguishes the reply to the current Load from those to earlier ones.
  uint64_t load_ = 0;
  // Why the last Load failed, until a call has been answered with it.
  std::optional<absl::Status> load_error_;
  // Failures to read the checkpoint of `generation_`.
  RepeatedFailure unreadable_;
  // True while the disk has not answered the last Save, of whichever
  // generation.
  bool writing_ = false;
  absl::Time writing_since_;
  uint64_t next_pin_ = 1;
  // The cumulative figures; figures() adds what is held at the moment.
  ShardFigures totals_;
  // Totals of tables in earlier generations of this process, by name.
  std::map<std::string, proto::TableReport> table_totals_;

  // The members below belong to `generation_`; Begin resets them.
  proto::Declaration declaration_;
  // Absent before the generation's Restore.
  std::optional<Receipts> receipts_;
  // Set while the shard has everything but first values, which workers must
  // give.
  std::optional<WantedValues> wanted_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  MemoryPlan memory_;
  RowMemory row_memory_;
  // Null before the generation has its state.
  std::unique_ptr<DenseStore> store_;
  // Read and changed only together with `store_`.
  ShardTables tables_;
  // The loss scale for gradients computed on the newest version; 0 if the job
  // has none, or if tickets carry it.
  float loss_scale_ = 0;
  StagedPushes staged_;
  Ledger ledger_;
  std::map<TaskId, Fenced> fenced_;
  std::map<uint64_t, Pinned> pins_;
  // True between Hold and Save.
  bool holding_ = false;
  Share share_;
  ParkedPulls parked_pulls_;
  ParkedApplies parked_applies_;
  ParkedAwaits parked_awaits_{kMaxParkedAwaits};
};

// The handlers of the coordinator's messages, by type of request.
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
