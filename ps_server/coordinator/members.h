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

// What became of a task's session.
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
//  3. A worker is shut out: the job goes on without it, or another process has
//     taken its place, or it told what is not so.
//  4. It leaves; or the job, which is done, waits for it no longer.
//
// Whatever but kLive has a free place: a newcomer begins a session of its own.
enum class Presence { kLive, kLost, kLeft, kFenced, kLeftFenced };

// A process in a task's place.
struct Member {
  Incarnation incarnation;
  uint64_t nonce = 0;
  std::string process;
  absl::Time expires;
  // Changed by Members::SetPresence only.
  Presence presence = Presence::kLive;
  // When it was last lost, or left.
  absl::Time lost_at = absl::InfiniteFuture();
  // When it last renewed its lease, or joined.
  absl::Time renewed_at;
  // As the task last told.
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

// The tasks of a job: who holds which place, and who is silent
// (docs/protocol/recovery.md, L1 to L3). Answers Register and RenewLease, and
// parks them. What follows for the job from who is here is its owner's.
//
// Thread-compatible. Part of an event machine. No call of a task costs more
// where there are more tasks.
class Members {
 public:
  // The job, as those who join are told of it; and what is told of them.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const proto::JobState& state() const = 0;
    virtual Generation generation() const = 0;
    // A generation is to begin that no message may name yet [R5].
    virtual bool beginning() const = 0;
    virtual uint64_t durable_step() const = 0;
    virtual std::string WaitingFor() const = 0;
    // That a worker or evaluator comes with this job's files.
    virtual absl::Status CheckDigests(
        const TaskId& task, const proto::RegisterRequest& request) = 0;

    // The last life in a place is over, and another takes it next.
    virtual void OnReplaced(const TaskId& task) = 0;
    // `again`: a ps whose life is another than the one before.
    virtual void OnJoined(const TaskId& task, bool again) = 0;
    virtual void OnBack(const TaskId& task) = 0;
    // Its lease has run out.
    virtual void OnLost(const TaskId& task) = 0;
    // It knows that the job has ended.
    virtual void OnTold(const WorkerLife& life) = 0;
    // It renews its lease. Whether it does what a trace wants of it.
    virtual bool HearTrace(const proto::RenewLeaseRequest& request) = 0;
    // What tasks are told of a trace; absent: there is none.
    virtual std::optional<proto::TraceOrder> trace_order() const = 0;
  };
  using Sessions = IndexedMap<TaskId, Member>;

  // `has_archive`: the job may be in a generation that began before this
  // coordinator's life.
  Members(const CoordinatorOptions& options, bool has_archive,
          const Clock* clock, Outbox* outbox, const JobDeclaration* declared,
          Owner* owner);

  // [L1] Incarnations of a coordinator's life that begins with a journal.
  void TakeUp(const proto::Journal& journal);

  // Errors of the following are those of the methods in
  // proto/coordinator.proto.
  // [L1] The only place where anybody is admitted: by a call that has just come
  // in. A parked one may be that of a process which has died meanwhile.
  void Register(const proto::RegisterRequest& request,
                Reply<proto::RegisterResponse> reply);
  // [L2]
  void RenewLease(const proto::RenewLeaseRequest& request,
                  Reply<proto::RenewLeaseResponse> reply);
  // Answers parked registrations whose obstacle is gone: those that wait for
  // the place of `task`, or for any place without one.
  void RetryRegisters(std::optional<TaskId> task);
  // Tells those that wait for news.
  void AnswerRenewals();

  // The report of the coordinator's own ps, which has no session.
  void OnOwnReport(const proto::PsReport& report) { own_report_ = report; }

  // [L3] Judges leases, and answers parked calls whose time is up.
  void JudgeLeases();
  void AnswerDue();
  // Nobody is judged in the lease after the last tick that came late.
  bool MayJudge() const {
    return clock_->Now() - judged_from_ >= options_.lease;
  }

  // The task's session is over, by its own word. It must be live.
  void OnLeave(const TaskId& task);
  // Nobody waits for workers and evaluators any more.
  void GiveUpWorkers();
  // [L4] The worker is shut out, live or not.
  void Fence(const TaskId& worker);

  // The sender's session, which speaks in this generation; or in any.
  // Errors: ABORTED when it speaks in another; NOT_FOUND when there is none.
  absl::StatusOr<const Member*> FindSession(const proto::Sender& sender) const;
  absl::StatusOr<const Member*> FindLife(const proto::Sender& sender) const;
  // Whether the caller's life is over: replaced, or shut out.
  bool IsFenced(const proto::Sender& sender) const;
  // The same where its session has been looked up.
  bool IsFenced(const absl::StatusOr<const Member*>& session,
                const proto::Sender& sender) const {
    return session.ok() ? (*session)->fenced() : IsFenced(sender);
  }

  const Sessions& sessions() const { return sessions_; }
  // Null: nobody has ever been there.
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
  // How often anybody's presence has changed.
  uint64_t presence_changes() const { return presence_changes_; }
  // Tasks whose sessions are not live.
  const std::set<TaskId>& lost() const { return lost_; }
  // Workers that have joined at any time.
  size_t num_workers_seen() const { return num_workers_seen_; }

  // ps that are not live, the coordinator's own aside.
  std::vector<TaskId> MissingPs() const;
  // By ps, what the life that has registered last told of itself.
  const std::vector<std::string>& ps_addresses() const { return ps_addresses_; }
  int64_t memory_limit(uint32_t ps) const { return memory_limits_[ps]; }
  uint64_t shard_nonce(uint32_t ps) const { return shard_nonces_[ps]; }

  // Adds an entry for each task that has ever been there, this ps among them.
  void AddTo(proto::GetStatusResponse* status) const;

  TaskId WorkerOfReplica(uint32_t replica) const;
  uint32_t ReplicaOf(const TaskId& worker) const;
  // As people are told.
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
  // The only place that changes a session's presence.
  void SetPresence(const TaskId& task, Member* session, Presence presence);
  proto::RegisterResponse RegisterAnswer(const TaskId& task) const;
  void Park(const proto::RegisterRequest& request, const std::string& obstacle,
            Reply<proto::RegisterResponse> reply);
  // Answers these as things are.
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
  // No lease runs out before this: leases are only ever prolonged.
  absl::Time leases_run_until_ = absl::InfiniteFuture();
  std::map<TaskId, Incarnation> last_incarnation_;
  uint64_t incarnations_from_;
  absl::Time last_judged_;
  absl::Time judged_from_ = absl::InfinitePast();
  ParkedRegisters parked_registers_;
  ParkedRenewals parked_renewals_;
  std::vector<std::string> ps_addresses_;
  // 0: no limit.
  std::vector<int64_t> memory_limits_;
  std::vector<uint64_t> shard_nonces_;
  std::optional<proto::PsReport> own_report_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_MEMBERS_H_
