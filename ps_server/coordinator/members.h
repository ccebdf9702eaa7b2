// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_MEMBERS_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_MEMBERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/ids.h"
#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "proto/coordinator.pb.h"
#include "ps_server/coordinator/coordinator_options.h"
#include "ps_server/coordinator/job_declaration.h"
#include "ps_server/coordinator/outbox.h"
#include "ps_server/protocol/indexed_map.h"
#include "ps_server/protocol/parked_calls.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// The state of a task's session.
//
//            renews (2)
//          +------------+
//          v            |
//   -> kLive --(1)--> kLost --(3)--> kFenced
//        |              |               |
//       (4)            (4)             (4)
//        v              v               v
//      kLeft <----------+         kLeftFenced
//        +------------(3)---------------^
//
//  1. The task's lease runs out.
//  2. The task renews its lease, before the job has ended.
//  3. A worker is fenced: the job continues without it, or another process has
//     taken its place, or it made a false statement.
//  4. The task leaves; or the job, which is done, no longer waits for it.
//
// In every state but kLive the task's place is free: a new process that
// registers as the task gets a session of its own.
enum class Presence { kLive, kLost, kLeft, kFenced, kLeftFenced };

// The session of a process that has registered as a task.
struct Member {
  Incarnation incarnation;
  uint64_t nonce = 0;
  std::string process;
  absl::Time expires;
  // Changed by Members::SetPresence only.
  Presence presence = Presence::kLive;
  // When the task was last lost, or when it left.
  absl::Time lost_at = absl::InfiniteFuture();
  // Why the task has left, for users. Empty if it has not, or did not say.
  std::string departure;
  // When the task last renewed its lease, or joined.
  absl::Time renewed_at;
  // What the task last reported; absent if it has not reported any.
  std::optional<proto::InputWait> input_wait;
  std::optional<proto::WorkerReport> worker;
  std::optional<proto::PsReport> ps;

  bool live() const { return presence == Presence::kLive; }
  bool left() const {
    return presence == Presence::kLeft || presence == Presence::kLeftFenced;
  }
  bool fenced() const {
    return presence == Presence::kFenced || presence == Presence::kLeftFenced;
  }
};

inline bool IsWorker(const TaskId& task) {
  return task.job == kWorkerJob || task.job == kChiefJob;
}

// Evaluator tasks have indices below this.
inline constexpr uint32_t kMaxEvaluators = 1000;

inline bool IsEvaluator(const TaskId& task) {
  return task.job == kEvaluatorJob;
}

// The tasks of a job: which process has registered as which task, and which
// tasks are silent (docs/protocol/recovery.md, L1 to L3). Answers or parks
// Register and RenewLease calls. The owner decides what a change of membership
// means for the job.
//
// Thread-compatible. Part of an event machine. The cost of a task's call does
// not grow with the number of tasks.
class Members {
 public:
  // Supplies the state of the job, to be passed on to tasks, and is notified of
  // changes of membership.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const proto::JobState& state() const = 0;
    virtual Generation generation() const = 0;
    // Whether a generation is beginning whose number no message may carry yet
    // [R5].
    virtual bool beginning() const = 0;
    virtual uint64_t durable_step() const = 0;
    virtual std::string WaitingFor() const = 0;
    // Checks that a worker or evaluator has this job's files.
    virtual absl::Status CheckDigests(
        const TaskId& task, const proto::RegisterRequest& request) = 0;

    // Called when the last life of `task` is over, and another process is about
    // to become the task.
    virtual void OnReplaced(const TaskId& task) = 0;
    // Called when a process has been admitted as `task`. `again` says whether
    // it is a ps that had a different life before.
    virtual void OnJoined(const TaskId& task, bool again) = 0;
    virtual void OnBack(const TaskId& task) = 0;
    // Called when the task's lease has run out.
    virtual void OnLost(const TaskId& task) = 0;
    // Called when the life knows that the job has ended.
    virtual void OnTold(const WorkerLife& life) = 0;
    // Called when a task renews its lease. Returns whether the task has
    // followed the trace order.
    virtual bool HearTrace(const proto::RenewLeaseRequest& request) = 0;
    // What tasks are told to do for a trace; absent if there is no trace.
    virtual std::optional<proto::TraceOrder> trace_order() const = 0;
  };
  using Sessions = IndexedMap<TaskId, Member>;

  // `has_archive` says whether there is a checkpoint directory, so that the
  // job's generation may have begun before this coordinator's life.
  Members(const CoordinatorOptions& options, bool has_archive,
          const Clock* clock, Outbox* outbox, const JobDeclaration* declared,
          Owner* owner);

  // [L1] Sets the number above which incarnations begin in this life of the
  // coordinator, which resumes from `journal`.
  void TakeUp(const proto::Journal& journal);

  // The errors of the following two methods are those of the methods with the
  // same names in proto/coordinator.proto.
  // [L1] Only this method admits a process, because only a call that has just
  // come in shows that the process is alive: the process of a parked call may
  // have died meanwhile.
  void Register(const proto::RegisterRequest& request,
                Reply<proto::RegisterResponse> reply);
  // [L2]
  void RenewLease(const proto::RenewLeaseRequest& request,
                  Reply<proto::RenewLeaseResponse> reply);
  // Answers the parked registrations that nothing keeps from being admitted any
  // more, so that their processes ask again: those as `task`, or as any task if
  // `task` is absent.
  void RetryRegisters(std::optional<TaskId> task);
  // Answers all parked renewals, because there is news for their tasks.
  void AnswerRenewals();

  // The report of the coordinator's own ps, which has no session.
  void OnOwnReport(const proto::PsReport& report) { own_report_ = report; }

  // [L3] JudgeLeases finds the tasks whose leases have run out. AnswerDue
  // answers parked calls that have reached their deadlines.
  void JudgeLeases();
  void AnswerDue();
  // Whether tasks may be declared lost. False until one lease has passed since
  // the last tick that came late, because tasks could not renew in time then.
  bool MayJudge() const {
    return clock_->Now() - judged_from_ >= options_.lease;
  }

  // Called when the task, which must be live, says that its session is over,
  // and perhaps why (Member::departure).
  void OnLeave(const TaskId& task, const std::string& departure = "");
  // Ends the sessions of workers and evaluators, for which the job no longer
  // waits.
  void GiveUpWorkers();
  // [L4] Fences the worker, live or not.
  void Fence(const TaskId& worker);

  // Returns the sender's session. FindSession also requires that the sender
  // names the current generation; FindLife does not.
  // Errors: NOT_FOUND when there is no session; ABORTED when the sender names
  // another generation.
  absl::StatusOr<const Member*> FindSession(const proto::Sender& sender) const;
  absl::StatusOr<const Member*> FindLife(const proto::Sender& sender) const;
  // Whether the sender's life is over: another life has replaced it, or it has
  // been fenced.
  bool IsFenced(const proto::Sender& sender) const;
  // The same, if the result of looking up the sender's session is known.
  bool IsFenced(const absl::StatusOr<const Member*>& session,
                const proto::Sender& sender) const {
    return session.ok() ? (*session)->fenced() : IsFenced(sender);
  }

  const Sessions& sessions() const { return sessions_; }
  // Null if the task has never had a session.
  const Member* Find(const TaskId& task) const {
    const auto found = sessions_.find(task);
    return found == sessions_.end() ? nullptr : &found->second;
  }
  bool IsLive(const TaskId& task) const {
    const Member* session = Find(task);
    return session != nullptr && session->live();
  }
  size_t num_live_workers() const { return live_workers_.size(); }
  const std::set<TaskId>& live_workers() const { return live_workers_; }
  const std::set<TaskId>& live_evaluators() const { return live_evaluators_; }
  // The number of times that the presence of any task has changed, which is the
  // version of the member list.
  uint64_t presence_changes() const { return presence_changes_; }
  // Tasks whose sessions are not live.
  const std::set<TaskId>& lost() const { return lost_; }
  // The number of workers that have ever joined.
  size_t num_workers_seen() const { return num_workers_seen_; }

  // The ps tasks that are not live, other than the coordinator's own.
  std::vector<TaskId> MissingPs() const;
  // What the last life of each ps said about itself when it registered.
  const std::vector<std::string>& ps_addresses() const { return ps_addresses_; }
  int64_t memory_limit(uint32_t ps) const { return memory_limits_[ps]; }
  uint64_t shard_nonce(uint32_t ps) const { return shard_nonces_[ps]; }

  // Adds an entry for each task that has ever had a session, and one for this
  // ps.
  void AddTo(proto::GetStatusResponse* status) const;

  TaskId WorkerOfReplica(uint32_t replica) const;
  uint32_t ReplicaOf(const TaskId& worker) const;
  // Describes the task in words for users.
  std::string Describe(const TaskId& task) const;

 private:
  // A process that registers as a task: the task and the process's nonce.
  using Registrant = std::pair<TaskId, uint64_t>;
  using ParkedRegisters =
      ParkedCalls<Registrant, proto::RegisterResponse, proto::RegisterRequest>;
  using ParkedRenewals = ParkedCalls<WorkerLife, proto::RenewLeaseResponse,
                                     proto::RenewLeaseRequest>;

  bool ended() const { return IsEnd(owner_->state().phase()); }
  absl::Status CheckTask(const TaskId& task) const;
  absl::Status CheckCluster(const TaskId& task,
                            const proto::RegisterRequest& request) const;
  // Returns what still keeps the caller from being admitted, in words for
  // users; empty if nothing does. Errors: those of Register.
  absl::StatusOr<std::string> FindObstacle(
      const proto::RegisterRequest& request) const;
  // Whether the caller may go on waiting, rather than being refused, when the
  // process that is the task now renews its lease.
  bool MayWaitForPlace(const proto::RegisterRequest& request) const;
  // Whether the caller is the process that has been admitted as the task.
  bool IsAdmitted(const proto::RegisterRequest& request) const;
  void Admit(const TaskId& task, const proto::RegisterRequest& request);
  // The only place that changes a session's presence.
  void SetPresence(const TaskId& task, Member* session, Presence presence);
  proto::RegisterResponse RegisterAnswer(const TaskId& task) const;
  void Park(const proto::RegisterRequest& request, const std::string& obstacle,
            Reply<proto::RegisterResponse> reply);
  // Answers these calls according to the current state.
  void Answer(std::vector<ParkedRegisters::Call> registers);
  proto::RenewLeaseResponse RenewalAnswer(const WorkerLife& life) const;
  void Answer(std::vector<ParkedRenewals::Call> renewals);

  const CoordinatorOptions& options_;
  const bool has_archive_;
  const Clock* const clock_;
  Outbox* const outbox_;
  const JobDeclaration* const declared_;
  Owner* const owner_;

  Sessions sessions_;
  std::set<TaskId> live_workers_;
  std::set<TaskId> live_evaluators_;
  std::set<TaskId> lost_;
  uint64_t presence_changes_ = 0;
  size_t num_workers_seen_ = 0;
  // No lease expires before this time, because leases are only ever extended.
  absl::Time leases_run_until_ = absl::InfiniteFuture();
  std::map<TaskId, Incarnation> last_incarnation_;
  uint64_t incarnations_from_;
  absl::Time last_judged_;
  absl::Time judged_from_ = absl::InfinitePast();
  ParkedRegisters parked_registers_;
  ParkedRenewals parked_renewals_;
  std::vector<std::string> ps_addresses_;
  // Indexed by ps; 0 means no limit.
  std::vector<int64_t> memory_limits_;
  std::vector<uint64_t> shard_nonces_;
  std::optional<proto::PsReport> own_report_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_MEMBERS_H_
