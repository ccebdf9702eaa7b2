// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_TESTING_FAKE_CLUSTER_H_
#define HOLDFAST_CLIENT_TESTING_FAKE_CLUSTER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/cluster.h"

namespace holdfast {

// A cluster that follows a test's script, and records its calls. By default it
// accepts every push, and a pull finds the version that it asks for, or, in an
// asynchronous job, the number of pushes whose application the worker has
// awaited. At version v every value of every variable and every row is v, and
// the loss scale, like that of ticket v, is 2^v.
//
// If the declaration has tickets, they go to this worker, in order; a ticket
// whose push is not ACCEPTED is handed out again. As with the coordinator, a
// worker that holds more tickets than it may is refused.
//
// The script must be complete before the worker begins. Thread-safe from then
// on.
class FakeCluster final : public Cluster {
 public:
  // `declaration`: what AwaitVariables finds, regardless of Declare.
  explicit FakeCluster(const proto::Declaration& declaration);

  // The script.

  // The verdict on the contribution to (step, seat).
  std::map<std::pair<uint64_t, uint32_t>, proto::Verdict> verdicts;
  // The verdict on the n-th push of an asynchronous job.
  std::map<uint64_t, proto::Verdict> applied_verdicts;
  // The version that a pull of at least the given version finds.
  std::map<uint64_t, uint64_t> newest;
  // The pulls, by the least version that they ask for, whose values arrive
  // variable by variable, when they are awaited; until then they are NaN. Such
  // a pull does not find `newest` before Await; if it has a variable here,
  // AwaitVariable says at that variable that a newer version has come.
  std::map<uint64_t, std::optional<size_t>> slow_pulls;
  // The tickets that this worker gets; by default all. The rest go to other
  // workers, and are spent by the end.
  std::deque<uint64_t> tickets;
  // The global step at which the ticket for the n-th push is given. Default:
  // the greatest version that a pull has found.
  std::map<uint64_t, uint64_t> ticket_steps;
  // The versions of the shards when a pin is read. The pinned version is the
  // least of them, ignoring 0, which stands for a shard with nothing to train.
  // Default: one shard, at the current version.
  std::vector<GlobalStep> pinned_versions;
  // The variables for whose gradients each push has memory, and their numbers
  // of elements.
  std::map<size_t, size_t> memory;
  // The results of calls, by their line in calls().
  std::map<std::string, absl::Status> errors;
  // How often WaitUntilDone, or WaitUntilHeld, returns false before the call
  // with this line may be made.
  std::map<std::string, int> delays;
  // The job is rolled back before the call with this line: that call and all
  // others except leave fail until the next AwaitVariables, which fails while
  // there are handles. When the call is made again, it behaves normally.
  struct RollBack {
    // The version that a pull finds then.
    uint64_t version = 0;
    // Replaces `tickets`.
    std::deque<uint64_t> tickets;
  };
  std::map<std::string, RollBack> roll_backs;
  // The least version that a pull finds, as if other workers were already
  // there.
  uint64_t first_version = 0;
  // Returned by durable_step().
  GlobalStep durable;
  // Returned by state().
  proto::JobPhase phase = proto::TRAINING;
  std::string reason;
  // The reporter of a job that is done.
  std::optional<proto::TaskId> reporter;
  proto::GetStatusResponse status;
  // Returned by NextEvaluation, in this order.
  std::deque<proto::CheckpointName> checkpoints;
  // All events, from which GetEvents selects, and the answer of GetHistory.
  std::vector<proto::Event> events;
  proto::GetHistoryResponse history;

  // One line per call, in order:
  //   "declare", "await variables", "push #1 of step 0", "add 2",
  //   "add rows of 0", "start push #1 again",
  //   "await push #1", "contribute #1: step 0, seat 1, 8 examples",
  //   "await verdict #1", "pull 1", "await pull 1",
  //   "await variable 0 of pull 1", "pin 4", "read 4",
  //   "report 4", "next evaluation", "report 4 of generation 1", "status",
  //   "events 0", "history 0", "await done", "finish", "cancel", "leave",
  //   "leave: why", "leave: program ended", "leave: stepped down",
  //   "take ticket #1", "await ticket #1", "push #1 of ticket 0 at 5",
  //   "apply #1: 8 examples", "await applied #1"
  std::vector<std::string> calls() const;
  // The lines of calls() that begin with `prefix`.
  std::vector<std::string> calls(const std::string& prefix) const;
  // The deadline of the last call that begins with `prefix`.
  absl::Time deadline_of(const std::string& prefix) const;
  std::vector<Contribution> contributions() const;
  // Indexed by sequence.
  std::map<uint64_t, Contribution> applications() const;

  // Waits until a scripted roll-back has taken place.
  void AwaitRollBack() const;

  // The gradients of push #n, indexed by variable.
  std::map<size_t, std::vector<float>> pushed(uint64_t n) const;
  // The gradients of rows of push #n, by table and id.
  using Rows = std::map<uint64_t, std::vector<float>>;
  std::map<size_t, Rows> pushed_rows(uint64_t n) const;
  // The pushes whose gradients were overwritten before they were acknowledged
  // or applied.
  std::set<uint64_t> overwritten() const;

  absl::Status Declare(const proto::Declaration& declaration,
                       absl::Time deadline) override;
  using Cluster::AwaitVariables;
  absl::Status AwaitVariables(absl::Time deadline,
                              const FirstValues& first_values) override;
  const proto::Declaration& declaration() const override {
    return declaration_;
  }
  std::unique_ptr<Push> StartPush(GlobalStep step) override;
  std::unique_ptr<Push> StartPush(const Ticket& ticket,
                                  const Parameters& at) override;
  std::unique_ptr<TicketRequest> StartTakeTicket() override;
  std::unique_ptr<Pull> StartPull(GlobalStep min_version,
                                  Parameters* into) override;
  absl::StatusOr<std::unique_ptr<Pin>> PinVersion(absl::Duration hold,
                                                  absl::Time deadline) override;
  absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                absl::Time deadline) override;
  absl::StatusOr<std::optional<proto::CheckpointName>> NextEvaluation(
      absl::Time deadline) override;
  absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                const proto::CheckpointName& checkpoint,
                                absl::Time deadline) override;
  absl::StatusOr<proto::GetStatusResponse> GetStatus(
      absl::Time deadline) override;
  absl::StatusOr<std::optional<proto::DeclaredJob>> GetDeclaredJob(
      absl::Time deadline) override;
  absl::StatusOr<proto::GetEventsResponse> GetEvents(
      uint64_t after, absl::Time deadline) override;
  absl::StatusOr<proto::GetHistoryResponse> GetHistory(
      const proto::GetHistoryRequest& request, absl::Time deadline) override;
  absl::StatusOr<proto::TraceResponse> Trace(const proto::TraceRequest& request,
                                             absl::Time deadline) override;
  absl::StatusOr<GlobalStep> SaveCheckpoint(absl::Time deadline) override;
  absl::StatusOr<proto::StopResponse> StopJob(proto::StopRequest request,
                                              absl::Time deadline) override;
  absl::Status Finish(absl::Time deadline) override;
  absl::StatusOr<proto::SetLearningRateResponse> SetLearningRate(
      const proto::SetLearningRateRequest& request,
      absl::Time deadline) override;
  absl::Status AwaitDone(absl::Time deadline) override;
  void Cancel() override;
  absl::Status Leave(const std::string& error, absl::Time deadline) override;
  absl::Status LeaveEarly(bool program_ended, absl::Time deadline) override;
  proto::JobState state() const override;
  bool rolled_back() const override;
  GlobalStep durable_step() const override { return durable; }

  const std::vector<proto::EvaluationResult>& reports() const {
    return reports_;
  }
  const proto::Declaration& declared() const { return declared_; }

 private:
  class FakePush;
  class FakePull;
  class FakePin;
  class FakeRead;
  class FakeTicketRequest;

  bool asynchronous() const {
    return declaration_.consistency().has_asynchronous();
  }
  // Counts the existing handles.
  class Counted {
   public:
    explicit Counted(FakeCluster* cluster) : cluster_(cluster) {
      ++cluster_->handles_;
    }
    ~Counted() { --cluster_->handles_; }

   private:
    FakeCluster* const cluster_;
  };

  PushSequence NextSequence() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the call with this line is no longer delayed.
  bool IsDue(const std::string& line) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records the call, and returns its scripted result.
  absl::Status Call(const std::string& line,
                    absl::Time deadline = absl::InfiniteFuture());
  void Fill(GlobalStep version, Parameters* into) const;
  // Gives out a ticket for the push, if there is one.
  std::optional<Ticket> GiveTicket(uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called when the push was contributed or is about to be applied: its ticket
  // is spent, or goes to the next request.
  void DecideTicket(uint64_t sequence, proto::Verdict verdict);
  // Whether no ticket is left and the worker holds one that is undecided.
  bool WaitsForOwnTicket() const;
  // Called when the worker knows the verdict, and so may hold another ticket.
  void ForgetTicket(uint64_t sequence);

  const proto::Declaration declaration_;
  std::atomic<int> handles_ = 0;

  mutable absl::Mutex mutex_;
  std::vector<std::pair<std::string, absl::Time>> calls_
      ABSL_GUARDED_BY(mutex_);
  std::vector<Contribution> contributions_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Contribution> applications_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::map<size_t, std::vector<float>>> pushed_
      ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::map<size_t, Rows>> pushed_rows_
      ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> overwritten_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  // A ticket that this worker holds.
  struct Held {
    uint64_t index = 0;
    bool decided = false;
  };
  std::map<uint64_t, Held> held_ ABSL_GUARDED_BY(mutex_);  // by sequence
  // The greatest version that a pull has found; asynchronous: the number of
  // pushes awaited.
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  // Set from the roll-back until the next AwaitVariables.
  std::optional<RollBack> roll_back_ ABSL_GUARDED_BY(mutex_);
  std::vector<proto::EvaluationResult> reports_;
  proto::Declaration declared_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_TESTING_FAKE_CLUSTER_H_
