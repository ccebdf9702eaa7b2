#ifndef HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/reply.h"
#include "common/task_id.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/archive.h"
#include "ps_server/coordinator/disk_watch.h"
#include "ps_server/coordinator/divergence_watch.h"
#include "ps_server/coordinator/live_workers.h"
#include "ps_server/coordinator/loss_scaler.h"
#include "ps_server/coordinator/progress.h"
#include "ps_server/coordinator/save_schedule.h"
#include "ps_server/coordinator/step.h"
#include "ps_server/coordinator/ticket_pool.h"
#include "ps_server/protocol/indexed_map.h"
#include "ps_server/protocol/ledger.h"
#include "ps_server/protocol/parked_calls.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/protocol/repeated_failure.h"
#include "ps_server/protocol/shard_messages.h"

namespace holdfast {

// The job's one decision maker: who is here, what a step is made of, who may
// push next on which examples, what is saved, where the job goes on from, and
// when it ends.
//
// A deterministic event machine: messages, replies of shards and archive, and
// clock ticks in; replies and messages out. What it does at each is told in
// docs/life_of_a_step.md, steps 3, 4 and 6, in docs/asynchronous.md, steps A1,
// A4 and A5, and in docs/recovery.md.
//
// Thread-compatible: its owner calls it, and the replies that it gave to
// ShardLinks and Archive, from one thread at a time. Replies and messages may
// be sent from inside any method.
//
// Invariants: one step is open; one message to all shards is under way, so that
// what one brings about is over before the next; a contribution that was given
// a verdict gets the same one for as long as its worker may ask in that
// generation; no message carries a generation that is not in the journal.
class Coordinator {
 public:
  struct Options {
    // ps tasks of the cluster, this one among them.
    uint32_t num_ps = 1;
    // Worker tasks of the cluster, a chief among them.
    uint32_t num_workers = 1;
    // Whether the first worker is called /job:chief/task:0.
    bool has_chief = false;
    // How long a task may be silent before it counts as lost. A longer one
    // forgives longer pauses, and tells of a death later.
    absl::Duration lease = absl::Seconds(10);
    // Timeouts until a declaration brings its own.
    absl::Duration start_timeout = absl::Seconds(300);
    absl::Duration step_timeout = absl::Seconds(300);
    absl::Duration recovery_timeout = absl::Seconds(300);
    // How long a message to a shard stays unanswered before it is sent again.
    absl::Duration resend_after = absl::Seconds(5);
    // Where this ps listens, for the placement.
    std::string address;
    // That this ps' share of the job may take. 0: no limit.
    int64_t memory_limit_bytes = 0;
    // Of this ps' shard: its life, as others tell theirs when they register.
    uint64_t shard_nonce = 0;
    // Of the checkpoint directory, as it was found; one that is new has a
    // directory_nonce and nothing else. Not read without an archive.
    proto::Journal journal;
    // A checkpoint's folder from which variables of the same name and shape
    // have their first values. Empty: none.
    std::string warm_start;
    // Random bytes that nobody else knows, from which the keys of receipts are
    // made: Receipts::kKeyBytes. Required.
    std::string receipt_secret;
    // Incarnations begin above it, where there is no archive: at random, so
    // that a process of an earlier job on these addresses is not taken for one
    // of this job's.
    uint64_t incarnations_from = 0;
  };

  // `archive` is null where there is no checkpoint directory. All must outlive
  // the coordinator.
  Coordinator(const Options& options, const Clock* clock, ShardLinks* links,
              Archive* archive);

  // Errors of the following are those of the methods in
  // proto/coordinator.proto.
  void Register(const proto::RegisterRequest& request,
                Reply<proto::RegisterResponse> reply);
  void RenewLease(const proto::RenewLeaseRequest& request,
                  Reply<proto::RenewLeaseResponse> reply);
  void Declare(const proto::DeclareRequest& request,
               Reply<proto::DeclareResponse> reply);
  void GetPlacement(const proto::GetPlacementRequest& request,
                    Reply<proto::GetPlacementResponse> reply);
  void Contribute(const proto::ContributeRequest& request,
                  Reply<proto::ContributeResponse> reply);
  void TakeTicket(const proto::TakeTicketRequest& request,
                  Reply<proto::TakeTicketResponse> reply);
  void ReportEvaluation(const proto::ReportEvaluationRequest& request,
                        Reply<proto::ReportEvaluationResponse> reply);
  void Leave(const proto::LeaveRequest& request,
             Reply<proto::LeaveResponse> reply);
  void GetStatus(const proto::GetStatusRequest& request,
                 Reply<proto::GetStatusResponse> reply);
  void Checkpoint(const proto::CheckpointRequest& request,
                  Reply<proto::CheckpointResponse> reply);

  // Judges leases and timeouts, answers parked calls whose time is up, sends
  // again what was not answered. Call it some ten times a second.
  void Tick();

  // Ends the job from outside, as when this ps is told to stop. Does nothing
  // once the journal is being written that says that the job is finished: then
  // it is DONE when that is on disk.
  void Fail(const std::string& reason);

  const proto::JobState& state() const { return state_; }
  Generation generation() const { return generation_; }
  // Verdicts that are remembered.
  size_t verdicts_kept() const { return ledger_.size(); }
  // True when the job has ended and everybody who can be told has been told:
  // the daemon may exit.
  bool finished() const;

 private:
  struct Session {
    Incarnation incarnation;
    uint64_t nonce = 0;
    std::string process;
    absl::Time expires;
    // False once it has left, or its lease has run out: it is lost, unless the
    // job is done with it. Changed by SetAlive only.
    bool alive = false;
    absl::Time lost_at = absl::InfiniteFuture();
    // It comes back no more, but another may.
    bool left = false;
    // Knows that the job has ended.
    bool told = false;
    // A worker that has been shut out.
    bool fenced = false;
    // Asynchronous: tickets spent, from where it joined; and the last sequence
    // that it had a ticket for.
    uint64_t clock = 0;
    PushSequence last_ticket;
    // As the task last told.
    std::optional<proto::InputWait> input_wait;
  };
  // A process that registers as a task: the task and the process's nonce.
  using Registrant = std::pair<TaskId, uint64_t>;
  using ParkedRegisters =
      ParkedCalls<Registrant, proto::RegisterResponse, proto::RegisterRequest>;
  using ParkedRenewals = ParkedCalls<WorkerLife, proto::RenewLeaseResponse,
                                     proto::RenewLeaseRequest>;
  using ParkedPlacements =
      ParkedCalls<std::monostate, proto::GetPlacementResponse>;
  using ParkedContributions = ParkedCalls<PushId, proto::ContributeResponse>;
  using ParkedTickets = ParkedCalls<PushId, proto::TakeTicketResponse>;
  // By the step that is to be durable.
  using ParkedCheckpoints = ParkedCalls<uint64_t, proto::CheckpointResponse>;
  // The message that all shards are to acknowledge. One at a time; End takes
  // the place of any other.
  struct Broadcast {
    enum Kind {
      kNone,
      kRestore,
      kCommit,
      kFence,
      kResolve,
      kHold,
      kSave,
      kEnd
    };
    struct Shard {
      bool acked = false;
      // When to send (again).
      absl::Time due;
      // Why it was sent again last.
      std::string trouble;
    };
    Kind kind = kNone;
    // Tells the replies to this broadcast from those to earlier ones.
    uint64_t number = 0;
    absl::Time begun;
    std::vector<Shard> shards;
  };
  // A change of the journal, and what follows when it is on disk.
  struct JournalChange {
    absl::AnyInvocable<void(proto::Journal* journal)> change;
    absl::AnyInvocable<void()> then;
  };
  // A checkpoint that shards hold and write.
  struct Saving {
    uint64_t number = 0;
    // Its files are filled in as shards have written them.
    proto::Manifest manifest;
    // By life, the pushes whose verdicts it makes final.
    std::map<WorkerLife, PushSequence> through;
    struct Shard {
      // Written or failed.
      bool done = false;
      // When to ask (again).
      absl::Time due;
      // Why it was asked again last.
      std::string trouble;
    };
    // By ps. Empty until every shard holds its share.
    std::vector<Shard> shards;
    // Of the first share that failed. The others are waited for: a shard takes
    // no second one while it writes, and steps would wait for it.
    absl::Status error;
  };

  void TakeUp(const proto::Journal& journal);

  // Who is who.
  absl::Status CheckTask(const TaskId& task) const;
  absl::Status CheckCluster(const TaskId& task,
                            const proto::RegisterRequest& request) const;
  bool IsWorker(const TaskId& task) const;
  TaskId WorkerOfReplica(uint32_t replica) const;
  uint32_t ReplicaOf(const TaskId& worker) const;
  std::string Describe(const TaskId& task) const;
  // Of the sender's life, which speaks in this generation; or in any.
  absl::StatusOr<Session*> FindSession(const proto::Sender& sender);
  absl::StatusOr<Session*> FindLife(const proto::Sender& sender);
  absl::Status CheckDigests(const TaskId& task,
                            const proto::RegisterRequest& request);
  // Of a worker that CheckDigests has refused: how what it would declare
  // differs from what was declared, which there must be. Errors: those of
  // Declare.
  absl::Status CompareDeclaration(const proto::DeclareRequest& request) const;
  // Whether the caller's life is over: replaced, or shut out.
  bool IsFenced(const proto::Sender& sender) const;
  // The same where its session has been looked up.
  bool IsFenced(const absl::StatusOr<Session*>& session,
                const proto::Sender& sender) const {
    return session.ok() ? (*session)->fenced : IsFenced(sender);
  }
  // What keeps the caller from being admitted yet; empty: nothing does.
  // Errors: those of Register.
  absl::StatusOr<std::string> FindObstacle(
      const proto::RegisterRequest& request) const;
  // Whether its caller is not refused yet when the holder of its place renews
  // the lease.
  bool MayWaitForPlace(const proto::RegisterRequest& request) const;
  // Whether this process is the one that has the task's place.
  bool IsAdmitted(const proto::RegisterRequest& request) const;
  void Admit(const TaskId& task, const proto::RegisterRequest& request);
  // The only place that changes whether a session is alive.
  void SetAlive(const TaskId& task, Session* session, bool alive);
  proto::RegisterResponse RegisterAnswer(const TaskId& task) const;
  void Park(const proto::RegisterRequest& request, const std::string& obstacle,
            Reply<proto::RegisterResponse> reply);
  void OnPresent();
  // Answers parked registrations whose obstacle is gone: those that wait for
  // the place of `task`, or for any place without one.
  void RetryRegisters(std::optional<TaskId> task);
  // Answers these as things are.
  void Answer(std::vector<ParkedRegisters::Call> registers);
  proto::RenewLeaseResponse RenewalAnswer(Session* session);
  void Answer(std::vector<ParkedRenewals::Call> renewals);

  // The way to the first step.
  absl::StatusOr<proto::Declaration> Resolve(
      const proto::Declaration& declaration) const;
  absl::Status SetDeclaration(const proto::Declaration& resolved);
  void RestoreWhenReady();
  void OnRestored();
  void StartClockWhenReady();
  proto::GetPlacementResponse PlacementAnswer() const;
  void AnswerPlacements();

  // The step.
  proto::ContributeResponse ContributeAnswer(proto::Verdict verdict) const;
  // Without a verdict.
  proto::ContributeResponse NotYetAnswer(const std::string& waiting_for) const;
  // Notes a verdict other than ACCEPTED.
  void Refuse(const PushId& push, proto::Verdict verdict);
  absl::Status Offer(const proto::ContributeRequest& request,
                     const PushId& push);
  // [P1] That the push, if it changes anything, is held wherever it has to be.
  absl::Status CheckHeld(const proto::ContributeRequest& request,
                         const PushId& push) const;
  void OpenStep(GlobalStep number);
  void CountMembers();
  // Whether the open step has all that it can get.
  bool StepIsFull() const;
  void CloseStep();
  void OnCommitted();
  // Does what is due once no message to all shards is under way: shut out,
  // save, or close the step.
  void Proceed();
  // Every step is made: the last checkpoint, then the end.
  void Conclude();
  // Ends a job whose gradients are not finite any more. False where there is no
  // such thing.
  bool FailIfDiverged();

  // Tickets and asynchronous pushes (coordinator_tickets.cc).
  bool asynchronous() const {
    return declaration_.has_value() &&
           declaration_->consistency().has_asynchronous();
  }
  proto::TakeTicketResponse TicketAnswer() const;
  // With the ticket that is out with `push`, if there is one.
  proto::TakeTicketResponse TicketAnswer(const PushId& push) const;
  absl::Status CheckMayTake(const proto::TakeTicketRequest& request,
                            const PushId& push) const;
  // [P3] That what is told as spent was applied.
  absl::Status CheckSpent(const proto::TakeTicketRequest& request,
                          const WorkerLife& from) const;
  // Shuts out a worker that lives and has told what is not so.
  void Expel(const TaskId& worker, const absl::Status& why);
  // The worker knows what became of its pushes up to `sequence`.
  void AckThrough(const WorkerLife& from, uint64_t sequence);
  // Tickets that one worker may hold.
  size_t MaxTickets(const TaskId& worker) const;
  void Book(const PushId& push, const proto::SpentTicket& spent);
  // One that was applied, and not told of by its worker.
  void AddUntold(const PushId& push, const TicketPool::Out& ticket,
                 Progress* progress, std::optional<LossScaler>* loss_scaler,
                 DivergenceWatch* divergence) const;
  // Whether the push may begin: its worker holds no ticket that is further
  // behind than it may be [P3], and the staleness bound lets it.
  bool MayBegin(const PushId& push) const;
  void GrantTickets();
  // The first parked request that may begin, or null.
  const ParkedTickets::Call* NextInBound();
  // Answers these as things are; those that get no ticket are told what they
  // wait for.
  void Answer(std::vector<ParkedTickets::Call> requests);
  void ShutOut(const TaskId& worker, Session* session);
  void ShutOutLost();
  void StartFence();
  // Notes what a shard says to have applied: of FenceResponse or HoldResponse.
  template <typename Response>
  void OnApplied(const Response& response);
  // With the scalars of its ticket.
  void AddApplied(
      const proto::AppliedPush& applied, uint64_t index,
      google::protobuf::RepeatedPtrField<proto::AppliedPush>* to) const;
  void StartResolve();
  void OnResolved();
  // For workers that hold tickets or, where none is out, for all.
  std::string WaitingForTickets() const;

  // The journal and generations (coordinator_recovery.cc).
  void ChangeJournal(absl::AnyInvocable<void(proto::Journal*)> change,
                     absl::AnyInvocable<void()> then);
  void WriteJournal();
  void OnJournalWritten(const absl::Status& status);
  // [G1] `why` is told to people.
  void BeginGeneration(const std::string& why);
  // [G2]
  void ChooseCheckpoint();
  void OnManifest(const absl::StatusOr<proto::Manifest>& manifest);
  // The last checkpoint of the journal cannot be read. False when it was the
  // only one: the job has failed.
  bool DropCheckpoint(const absl::Status& why);
  // [G3]
  void StartGeneration();

  // Checkpoints (coordinator_recovery.cc).
  bool SaveIsDue() const;
  void StartSave();
  void OnHeld();
  proto::Position PositionNow(const std::set<uint64_t>& applied) const;
  void OnPinned();
  void AskForFiles();
  void OnFile(uint64_t number, uint32_t ps,
              const absl::StatusOr<proto::AwaitSavedResponse>& response);
  void WriteManifest();
  void OnSaved();
  void AbandonSave(const absl::Status& why);
  proto::CheckpointResponse CheckpointAnswer(uint64_t step,
                                             const std::string& error) const;
  // `error`: why an attempt has just failed.
  void Answer(std::vector<ParkedCheckpoints::Call> requests,
              const std::string& error = "");

  // Messages to the shards.
  void StartBroadcast(Broadcast::Kind kind);
  // [P5] Names the life of the shard that has registered last.
  template <typename Request>
  void SendTo(uint32_t ps, Request request,
              Reply<typename ShardMethod<Request>::Response> reply) {
    request.mutable_sender()->set_receiver_nonce(shard_nonces_[ps]);
    links_->Send(ps, std::move(request), ToMethod<Request>(std::move(reply)));
  }
  void SendDue();
  // A shard loads its share, and has come so far.
  void OnRestorePending(uint64_t broadcast, uint32_t ps,
                        const proto::DiskProgress& progress);
  // Whether the shard has not acknowledged the broadcast of that number.
  bool IsAwaited(uint64_t broadcast, uint32_t ps) const;
  void OnShardReply(uint64_t broadcast, uint32_t ps,
                    const absl::Status& status);
  void OnBroadcastAcked();
  proto::Sender Self() const;

  // Waits, leases and the end.
  std::string WaitingFor() const;
  // Names of tasks that are waited for; beyond some, how many more there are.
  static std::string JoinSome(const std::vector<std::string>& names);
  // Of the checkpoint under way, the ps that have not written theirs.
  std::vector<std::string> UnwrittenShares() const;
  absl::Duration StartTimeout() const;
  absl::Duration StepTimeout() const;
  absl::Duration RecoveryTimeout() const;
  absl::Duration DiskTimeout() const;
  // How long a shard may park a call that waits for its disk.
  absl::Duration DiskPark() const;
  // Restore has shards read files.
  bool RestoreNeedsDisk() const;
  std::vector<std::string> LateTasks() const;
  // The job goes on without workers that are lost.
  bool continues() const;
  // Too few workers are there for anything to go on.
  bool TooFewWorkers() const;
  // Tasks that the job waits for, and since when the first of them is lost.
  struct Lost {
    std::vector<TaskId> tasks;
    absl::Time since = absl::InfiniteFuture();
  };
  Lost LostTasks() const;
  void OnLost(const TaskId& task, Session* session);
  void JudgeLeases(absl::Time now);
  void JudgeTimeouts(absl::Time now);
  void JudgeRestore(absl::Time now);
  void JudgeEnd(absl::Time now);
  // As Fail, whatever is under way.
  void FailNow(const std::string& reason);
  // The journal that is being written says that the job is finished, and the
  // disk does not stand still.
  bool IsFinishing() const;
  void Finish();
  // Who evaluates the last version and writes the result, when the job is DONE.
  TaskId ChooseReporter() const;
  bool IsReporter(const TaskId& worker) const {
    return worker.job == state_.reporter().job() &&
           worker.index == state_.reporter().index();
  }
  void SetReporter(const TaskId& worker);
  // One that has just come may report in place of one that is lost.
  void ReplaceReporter(const TaskId& newcomer);
  // [C5] The journal says that the job is finished.
  void FinishByJournal();
  void EndWhenReady();
  // What is left to do, the last Commit or checkpoint, needs no worker.
  bool AllStepsFixed() const;
  // Every step is committed, or every ticket spent.
  bool AllMade() const;
  bool ended() const {
    return state_.phase() == proto::DONE || state_.phase() == proto::FAILED;
  }

  const Options options_;
  const Clock* const clock_;
  ShardLinks* const links_;
  Archive* const archive_;
  Generation generation_ = Generation(1);

  proto::JobState state_;
  absl::Time begun_;
  absl::Time last_tick_;
  absl::Time done_at_;
  // The last time that a tick came late: nobody is judged in the lease after
  // it.
  absl::Time judged_from_ = absl::InfinitePast();
  // When somebody was last missing: the step's time begins again with his
  // return.
  absl::Time missing_until_ = absl::InfinitePast();

  IndexedMap<TaskId, Session> sessions_;
  LiveWorkers live_workers_;
  // Tasks whose sessions are not alive.
  std::set<TaskId> lost_;
  // No lease runs out before this: leases are only ever prolonged.
  absl::Time leases_run_until_ = absl::InfiniteFuture();
  std::map<TaskId, Incarnation> last_incarnation_;
  uint64_t incarnations_from_;
  ParkedRegisters parked_registers_;
  ParkedRenewals parked_renewals_;
  // Of the first worker that registered, or of the journal, as people are told;
  // the other workers' must be the same.
  std::optional<std::string> digests_from_;
  std::string job_digest_;
  std::string data_digest_;

  std::optional<proto::Declaration> declaration_;  // with defaults filled in
  std::vector<proto::Slice> slices_;
  std::vector<std::string> ps_addresses_;
  // By ps. 0: no limit.
  std::vector<int64_t> memory_limits_;
  // By ps: the life that has registered.
  std::vector<uint64_t> shard_nonces_;
  ParkedPlacements parked_placements_;

  // As it is on disk. Changes are written one after the other.
  proto::Journal journal_;
  proto::Journal journal_in_writing_;
  std::deque<JournalChange> journal_changes_;
  bool journal_busy_ = false;
  // When the change that is being written was first tried.
  absl::Time journal_begun_ = absl::InfinitePast();
  absl::Time journal_due_ = absl::InfiniteFuture();
  absl::Time failing_since_ = absl::InfiniteFuture();
  // What the archive last answered, while it has not done what it should.
  std::string archive_trouble_;

  // A generation is to begin that is not in the journal yet: no message of it
  // may leave.
  bool beginning_ = false;
  bool reading_manifest_ = false;
  absl::Time begin_due_ = absl::InfiniteFuture();
  // Of the manifest that is read.
  RepeatedFailure unreadable_;
  absl::Time generation_begun_;
  std::string recovered_;
  // From where it goes on.
  proto::Manifest from_;

  // Of this generation, once its shards are being restored.
  std::optional<Receipts> receipts_;
  // The variables exist on every shard.
  bool created_ = false;
  // Synchronous jobs.
  std::optional<Step> step_;
  // Asynchronous: when a ticket was last spent.
  absl::Time step_opened_;
  Ledger ledger_;
  ParkedContributions parked_contributions_;
  // CONTINUE: who was there when the step was opened, and has not been shut
  // out since.
  std::set<TaskId> members_;
  // Steps so far that changed something, as Adam counts.
  uint64_t updates_ = 0;
  // Of the open step; asynchronous: of the next ticket. Jobs with loss scaling.
  std::optional<LossScaler> loss_scaler_;
  // Of this generation, once its shards are restored.
  std::optional<DivergenceWatch> divergence_;

  // Jobs whose examples are by ticket.
  std::optional<TicketPool> tickets_;
  ParkedTickets parked_tickets_;
  // Parked requests with numbers up to this may not begin while the slowest
  // worker's clock is at most out_of_bound_at_.
  uint64_t out_of_bound_through_ = 0;
  uint64_t out_of_bound_at_ = 0;
  // Lives to be fenced with the next Fence.
  std::vector<WorkerLife> fences_due_;
  proto::FenceRequest fence_;
  // What any shard has applied of them.
  std::map<PushId, proto::AppliedPush> applied_;
  proto::ResolveRequest resolve_;

  std::optional<Saving> saving_;
  // Of what is being saved or restored.
  DiskWatch disk_watch_;
  // Saves begin no earlier.
  absl::Time save_not_before_ = absl::InfinitePast();
  uint64_t save_number_ = 0;
  SaveSchedule save_schedule_;
  // Of the newest checkpoint that is in the journal.
  uint64_t durable_step_ = 0;
  std::map<WorkerLife, PushSequence> durable_through_;
  std::string checkpoint_error_;
  // Asked for by Checkpoint, of what was reached then.
  uint64_t save_wanted_ = 0;
  ParkedCheckpoints parked_checkpoints_;
  // All steps are made, since then.
  std::optional<absl::Time> concluding_since_;
  // The last checkpoint could not be written, since then.
  absl::Time conclusion_failing_since_ = absl::InfiniteFuture();

  Broadcast broadcast_;
  proto::RestoreRequest restore_;
  proto::HoldRequest hold_;
  proto::SaveRequest save_;
  proto::CommitRequest commit_;

  // Steps that every shard has committed; asynchronous: tickets spent.
  GlobalStep committed_;
  // For GetStatus.
  Progress progress_;
  std::optional<absl::Time> training_begun_;
  // Before this coordinator's life.
  double training_seconds_before_ = 0;
  absl::Time last_commit_;
  std::optional<proto::EvaluationResult> evaluation_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_
