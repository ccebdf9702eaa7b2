#ifndef HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/reply.h"
#include "common/task_id.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/step.h"
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
  virtual void End(uint32_t ps, const proto::EndRequest& request,
                   Reply<proto::EndResponse> reply) = 0;
};

// The job's one decision maker: who is here, what a step is made of, and when
// the job ends.
//
// A deterministic event machine: messages, replies of shards and clock ticks
// in; replies and messages to shards out. What it does at each is told in
// docs/life_of_a_step.md, steps 3, 4 and 6.
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
  // The message that all shards are to acknowledge. One at a time; End takes
  // the place of any other.
  struct Broadcast {
    enum Kind { kNone, kCreate, kCommit, kEnd };
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
  // What a committed step adds to the status.
  struct StepLoss {
    uint64_t examples = 0;
    double loss_sum = 0;
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
  void CreateWhenReady();
  void StartClockWhenReady();
  proto::GetPlacementResponse PlacementAnswer() const;
  void AnswerPlacements();

  // The step.
  proto::ContributeResponse ContributeAnswer(proto::Verdict verdict) const;
  void Decide(const PushId& push, proto::Verdict verdict);
  absl::Status Offer(const proto::ContributeRequest& request,
                     const PushId& push);
  void CloseStepWhenReady();
  void OnCommitted();

  // Messages to the shards.
  void StartBroadcast(Broadcast::Kind kind);
  void SendDue();
  void OnShardReply(uint64_t broadcast, uint32_t ps,
                    const absl::Status& status);
  void OnBroadcastAcked();
  proto::Sender Self() const;

  // Waits, leases and the end.
  std::string WaitingFor() const;
  void JudgeLeases(absl::Time now);
  void JudgeTimeouts(absl::Time now);
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
  std::vector<ParkedPlacement> parked_placements_;

  std::optional<Step> step_;
  absl::Time step_opened_;
  Ledger ledger_;
  std::vector<ParkedContribution> parked_contributions_;

  Broadcast broadcast_;
  proto::CreateRequest create_;
  proto::CommitRequest commit_;
  StepLoss committing_;

  // For GetStatus.
  GlobalStep committed_;
  uint64_t examples_ = 0;
  proto::PushCounts pushes_;
  std::deque<StepLoss> recent_;
  std::optional<absl::Time> training_begun_;
  absl::Time last_commit_;
  std::optional<proto::EvaluationResult> evaluation_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_COORDINATOR_H_
