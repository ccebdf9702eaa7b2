#ifndef HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/reply.h"
#include "common/task_id.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/progress.h"
#include "ps_server/coordinator/step.h"
#include "ps_server/coordinator/ticket_pool.h"
#include "ps_server/shard/ledger.h"
#include "ps_server/shard/push_id.h"

namespace holdfast {

// The way from the coordinator to the shards. Calls do not block; a reply may
// come at any time, or as an error when the message or its answer was lost.
class ShardLinks {
 public:
  virtual ~ShardLinks() = default;
  // Called for each ps but the coordinator's own, when it joins.
  virtual void SetAddress(uint32_t ps, const std::string& address) = 0;
  virtual void Create(uint32_t ps, const proto::CreateRequest& request,
                      Reply<proto::CreateResponse> reply) = 0;
  virtual void Commit(uint32_t ps, const proto::CommitRequest& request,
                      Reply<proto::CommitResponse> reply) = 0;
  virtual void Fence(uint32_t ps, const proto::FenceRequest& request,
                     Reply<proto::FenceResponse> reply) = 0;
  virtual void Resolve(uint32_t ps, const proto::ResolveRequest& request,
                       Reply<proto::ResolveResponse> reply) = 0;
  virtual void End(uint32_t ps, const proto::EndRequest& request,
                   Reply<proto::EndResponse> reply) = 0;
};

// The job's one decision maker: who is here, what a step is made of, who may
// push next on which examples, and when the job ends.
//
// A deterministic event machine: messages, replies of shards and clock ticks
// in; replies and messages to shards out. What it does at each is told in
// docs/life_of_a_step.md, steps 3, 4 and 6, and in docs/asynchronous.md, steps
// A1, A4 and A5.
//
// Thread-compatible: its owner calls it, and the replies that it gave to
// ShardLinks, from one thread at a time. Replies and messages may be sent from
// inside any method.
//
// Invariants: one step is open; Commit(t) is sent only when every shard has
// acknowledged Commit(t - 1); a contribution that was given a verdict gets the
// same one for as long as its worker may ask.
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
    // How long a message to a shard stays unanswered before it is sent again.
    absl::Duration resend_after = absl::Seconds(5);
    // Where this ps listens, for the placement.
    std::string address;
    // That this ps' share of the job may take. 0: no limit.
    int64_t memory_limit_bytes = 0;
  };

  // `clock` and `links` must outlive the coordinator.
  Coordinator(const Options& options, const Clock* clock, ShardLinks* links);

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

  // Judges leases and timeouts, answers parked calls whose time is up, sends
  // again what was not answered. Call it some ten times a second.
  void Tick();

  // Ends the job from outside, as when this ps is told to stop.
  void Fail(const std::string& reason);

  const proto::JobState& state() const { return state_; }
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
    // False once it has left, or its lease has run out.
    bool alive = true;
    // Knows that the job has ended.
    bool told = false;
    // A worker that has been shut out: its tickets go to others.
    bool fenced = false;
    // Asynchronous: tickets spent, from where it joined.
    uint64_t clock = 0;
  };
  struct ParkedPlacement {
    Reply<proto::GetPlacementResponse> reply;
    absl::Time deadline;
  };
  struct ParkedContribution {
    PushId push;
    Reply<proto::ContributeResponse> reply;
    absl::Time deadline;
  };
  struct ParkedTicket {
    PushId push;
    Reply<proto::TakeTicketResponse> reply;
    absl::Time deadline;
  };
  // The message that all shards are to acknowledge. One at a time; End takes
  // the place of any other.
  struct Broadcast {
    enum Kind { kNone, kCreate, kCommit, kFence, kResolve, kEnd };
    struct Shard {
      bool acked = false;
      // When to send (again).
      absl::Time due;
    };
    Kind kind = kNone;
    // Tells the replies to this broadcast from those to earlier ones.
    uint64_t number = 0;
    absl::Time begun;
    std::vector<Shard> shards;
  };
  // Who is who.
  absl::Status CheckTask(const TaskId& task) const;
  bool IsWorker(const TaskId& task) const;
  TaskId WorkerOfReplica(uint32_t replica) const;
  uint32_t ReplicaOf(const TaskId& worker) const;
  std::string Describe(const TaskId& task) const;
  absl::StatusOr<Session*> FindSession(const proto::Sender& sender);
  absl::Status CheckDigests(const TaskId& task,
                            const proto::RegisterRequest& request);

  // The way to the first step.
  absl::StatusOr<proto::Declaration> Resolve(
      const proto::Declaration& declaration) const;
  absl::Status ResolveSynchronous(proto::Declaration* declaration) const;
  absl::Status ResolveAsynchronous(proto::Declaration* declaration) const;
  void CreateWhenReady();
  void OnCreated();
  void StartClockWhenReady();
  proto::GetPlacementResponse PlacementAnswer() const;
  void AnswerPlacements();

  // The step.
  proto::ContributeResponse ContributeAnswer(proto::Verdict verdict) const;
  // Notes a verdict other than ACCEPTED.
  void Refuse(const PushId& push, proto::Verdict verdict);
  absl::Status Offer(const proto::ContributeRequest& request,
                     const PushId& push);
  // Whether the open step has all that it can get.
  bool StepIsFull() const;
  void CloseStepWhenReady();
  void OnCommitted();

  // Tickets and asynchronous pushes (coordinator_tickets.cc).
  bool asynchronous() const {
    return declaration_.has_value() &&
           declaration_->consistency().has_asynchronous();
  }
  proto::TakeTicketResponse TicketAnswer() const;
  proto::TakeTicketResponse TicketAnswer(const PushId& push) const;
  absl::Status CheckMayTake(const proto::TakeTicketRequest& request,
                            const PushId& push) const;
  // The worker knows what became of its pushes up to `sequence`.
  void AckThrough(const WorkerLife& from, uint64_t sequence);
  // Tickets that one worker may hold.
  size_t MaxTickets() const;
  void Book(const PushId& push, const proto::SpentTicket& spent);
  // Whether the staleness bound lets the push begin; the least number of spent
  // tickets of any live worker is `slowest`.
  bool IsInBound(const PushId& push, uint64_t slowest) const;
  uint64_t SlowestClock() const;
  void GrantTickets();
  // Answers parked requests as things are.
  void AnswerTickets(absl::FunctionRef<bool(const ParkedTicket&)> ready);
  void ShutOut(const TaskId& worker, Session* session);
  void FenceWhenReady();
  void OnFenced(const proto::FenceResponse& response);
  void StartResolve();
  void OnResolved();
  // For workers that hold tickets or, where none is out, for all.
  std::string WaitingForTickets() const;

  // Messages to the shards.
  void StartBroadcast(Broadcast::Kind kind);
  void SendDue();
  // Whether the shard has not acknowledged the broadcast of that number.
  bool IsAwaited(uint64_t broadcast, uint32_t ps) const;
  void OnShardReply(uint64_t broadcast, uint32_t ps,
                    const absl::Status& status);
  void OnBroadcastAcked();
  proto::Sender Self() const;

  // Waits, leases and the end.
  std::string WaitingFor() const;
  absl::Duration StartTimeout() const;
  absl::Duration StepTimeout() const;
  std::vector<std::string> LateWorkers() const;
  void JudgeLeases(absl::Time now);
  void JudgeTimeouts(absl::Time now);
  void Finish();
  void EndWhenReady();
  // What is left to do is the last Commit.
  bool AllStepsFixed() const;
  bool ended() const {
    return state_.phase() == proto::DONE || state_.phase() == proto::FAILED;
  }

  const Options options_;
  const Clock* const clock_;
  ShardLinks* const links_;
  const Generation generation_ = Generation(1);

  proto::JobState state_;
  absl::Time begun_;
  absl::Time last_tick_;
  absl::Time done_at_;
  // The last time that a tick came late: nobody is judged in the lease after
  // it.
  absl::Time judged_from_ = absl::InfinitePast();

  std::map<TaskId, Session> sessions_;
  std::map<TaskId, Incarnation> last_incarnation_;
  // Of the first worker that registered; the others' must be the same.
  std::optional<TaskId> digests_from_;
  std::string job_digest_;
  std::string data_digest_;

  std::optional<proto::Declaration> declaration_;  // with defaults filled in
  std::vector<proto::Slice> slices_;
  std::vector<std::string> ps_addresses_;
  // By ps. 0: no limit.
  std::vector<int64_t> memory_limits_;
  std::vector<ParkedPlacement> parked_placements_;

  // The variables exist on every shard.
  bool created_ = false;
  // Synchronous jobs.
  std::optional<Step> step_;
  // Asynchronous: when a ticket was last spent.
  absl::Time step_opened_;
  Ledger ledger_;
  std::vector<ParkedContribution> parked_contributions_;
  // Steps so far that changed something, as Adam counts.
  uint64_t updates_ = 0;

  // Jobs whose examples are by ticket.
  std::optional<TicketPool> tickets_;
  std::vector<ParkedTicket> parked_tickets_;
  // Lives to be fenced with the next Fence.
  std::vector<WorkerLife> fences_due_;
  proto::FenceRequest fence_;
  // What any shard has applied of them.
  std::map<PushId, proto::AppliedPush> applied_;
  proto::ResolveRequest resolve_;

  Broadcast broadcast_;
  proto::CreateRequest create_;
  proto::CommitRequest commit_;
  std::vector<AcceptedPush> committing_;

  // For GetStatus.
  GlobalStep committed_;
  Progress progress_;
  std::optional<absl::Time> training_begun_;
  absl::Time last_commit_;
  std::optional<proto::EvaluationResult> evaluation_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_
