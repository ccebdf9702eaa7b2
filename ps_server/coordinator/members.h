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
//  1. Its lease runs out.
//  2. It renews, before the job has ended.
//  3. A worker is fenced: the job continues without it, or another process has
//     taken its place, or it made a false statement.
//  4. It leaves; or the job, which is done, no longer waits for it.
//
// In every state but kLive the place is free: a newcomer begins a session of
// its own.
enum class Presence { kLive, kLost, kLeft, kFenced, kLeftFenced };

// A process in a task's place.
struct Member {
  Incarnation incarnation;
  uint64_t nonce = 0;
  std::string process;
  absl::Time expires;
  // Changed by Members::SetPresence only.
  Presence presence = Presence::kLive;
  // When it was last lost, or when it left.
  absl::Time lost_at = absl::InfiniteFuture();
  // When it last renewed its lease, or joined.
  absl::Time renewed_at;
  // What the task last reported.
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

// The tasks of a job: which process holds which place, and which tasks are
// silent (docs/protocol/recovery.md, L1 to L3). Answers or parks Register and
// RenewLease calls. What changes of membership mean for the job is for the
// owner to decide.
//
// Thread-compatible. Part of an event machine. The cost of a task's call does
// not grow with the number of tasks.
class Members {
 public:
  // Supplies the state of the job that tasks are told, and is notified of
  // changes.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const proto::JobState& state() const = 0;
    virtual Generation generation() const = 0;
    // Whether a generation is beginning that no message may name yet [R5].
    virtual bool beginning() const = 0;
    virtual uint64_t durable_step() const = 0;
    virtual std::string WaitingFor() const = 0;
    // Checks that a worker or evaluator has this job's files.
    virtual absl::Status CheckDigests(
        const TaskId& task, const proto::RegisterRequest& request) = 0;

    // The last life in a place is over, and another is about to take the place.
    virtual void OnReplaced(const TaskId& task) = 0;
    // `again`: the task is a ps, with another life than it had before.
    virtual void OnJoined(const TaskId& task, bool again) = 0;
    virtual void OnBack(const TaskId& task) = 0;
    // Its lease has run out.
    virtual void OnLost(const TaskId& task) = 0;
    // It knows that the job has ended.
    virtual void OnTold(const WorkerLife& life) = 0;
    // A task renews its lease. Returns whether it has followed the trace order.
    virtual bool HearTrace(const proto::RenewLeaseRequest& request) = 0;
    // What tasks are told to do for a trace; absent if there is none.
    virtual std::optional<proto::TraceOrder> trace_order() const = 0;
  };
  using Sessions = IndexedMap<TaskId, Member>;

  // `has_archive`: the job may be in a generation that began before this
  // coordinator's life.
  Members(const CoordinatorOptions& options, bool has_archive,
          const Clock* clock, Outbox* outbox, const JobDeclaration* declared,
          Owner* owner);

  // [L1] Sets from where incarnations count in a coordinator's life that begins
  // with a journal.
  void TakeUp(const proto::Journal& journal);

  // The errors of the following are those of the methods in
  // proto/coordinator.proto.
  // [L1] The only place where a process is admitted: a call that has just come
  // in. The process of a parked call may have died meanwhile.
  void Register(const proto::RegisterRequest& request,
                Reply<proto::RegisterResponse> reply);
  // [L2]
  void RenewLease(const proto::RenewLeaseRequest& request,
                  Reply<proto::RenewLeaseResponse> reply);
  // Answers parked registrations whose obstacle is gone: those that wait for
  // the place of `task`, or for any place if `task` is absent.
  void RetryRegisters(std::optional<TaskId> task);
  // Answers parked renewals, which wait for news.
  void AnswerRenewals();

  // The report of the coordinator's own ps, which has no session.
  void OnOwnReport(const proto::PsReport& report) { own_report_ = report; }

  // [L3] Judges leases, and answers parked calls that have reached their
  // deadlines.
  void JudgeLeases();
  void AnswerDue();
  // False within a lease's length of the last tick that came late: no task is
  // judged then.
  bool MayJudge() const {
    return clock_->Now() - judged_from_ >= options_.lease;
  }

  // The task says that its session is over. It must be live.
  void OnLeave(const TaskId& task);
  // The job no longer waits for workers and evaluators.
  void GiveUpWorkers();
  // [L4] Fences the worker, live or not.
  void Fence(const TaskId& worker);

  // The sender's session. FindSession also requires that the sender names this
  // generation.
  // Errors: NOT_FOUND when there is no session; ABORTED when the sender names
  // another generation.
  absl::StatusOr<const Member*> FindSession(const proto::Sender& sender) const;
  absl::StatusOr<const Member*> FindLife(const proto::Sender& sender) const;
  // Whether the caller's life is over: replaced, or fenced.
  bool IsFenced(const proto::Sender& sender) const;
  // The same, given the session that was looked up.
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
  // How often the presence of any task has changed.
  uint64_t presence_changes() const { return presence_changes_; }
  // Tasks whose sessions are not live.
  const std::set<TaskId>& lost() const { return lost_; }
  // The number of workers that have ever joined.
  size_t num_workers_seen() const { return num_workers_seen_; }

  // The ps tasks that are not live, other than the coordinator's own.
  std::vector<TaskId> MissingPs() const;
  // Indexed by ps: what the life that registered last reported about itself.
  const std::vector<std::string>& ps_addresses() const { return ps_addresses_; }
  int64_t memory_limit(uint32_t ps) const { return memory_limits_[ps]; }
  uint64_t shard_nonce(uint32_t ps) const { return shard_nonces_[ps]; }

  // Adds an entry for each task that has ever had a session, and one for this
  // ps.
  void AddTo(proto::GetStatusResponse* status) const;

  TaskId WorkerOfReplica(uint32_t replica) const;
  uint32_t ReplicaOf(const TaskId& worker) const;
  // The task in words for users.
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
  // What still keeps the caller from being admitted; empty if nothing does.
  // Errors: those of Register.
  absl::StatusOr<std::string> FindObstacle(
      const proto::RegisterRequest& request) const;
  // Whether the caller may go on waiting when the holder of its place renews
  // the lease, rather than being refused.
  bool MayWaitForPlace(const proto::RegisterRequest& request) const;
  // Whether this process is the one that holds the task's place.
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
  // No lease expires before this: leases are only ever extended.
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
