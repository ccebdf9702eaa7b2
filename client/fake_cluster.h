#ifndef HOLDFAST_CLIENT_FAKE_CLUSTER_H_
#define HOLDFAST_CLIENT_FAKE_CLUSTER_H_

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

// A cluster that does as a test has written down, and writes down what it was
// asked. Without other orders it accepts every push, and a pull finds the
// version that it asks for; in an asynchronous job that which counts the pushes
// whose application the worker has awaited. At version v every value of every
// variable and every row is v, and the loss scale, as that of ticket v, is 2^v.
//
// The tickets of a declaration that has some go to this worker, in order; one
// whose push is not ACCEPTED is handed out again. A worker that holds more than
// it may is refused, as by the coordinator.
//
// Orders are given before the worker begins. Thread-safe from then on.
class FakeCluster final : public Cluster {
 public:
  // What AwaitVariables finds, whoever declared it.
  explicit FakeCluster(const proto::Declaration& declaration);

  // Orders.

  // The verdict on the contribution to (step, seat).
  std::map<std::pair<uint64_t, uint32_t>, proto::Verdict> verdicts;
  // The verdict on the n-th push, of an asynchronous job.
  std::map<uint64_t, proto::Verdict> applied_verdicts;
  // What a pull of at least this version finds.
  std::map<uint64_t, uint64_t> newest;
  // The tickets that this worker gets, by default all. Others go to others, and
  // are spent by the end.
  std::deque<uint64_t> tickets;
  // The global step that the ticket for the n-th push is given at. Default: the
  // greatest version that a pull has found.
  std::map<uint64_t, uint64_t> ticket_steps;
  // The versions of the shards where a pin is read; the version is the least, 0
  // being that of a shard with nothing to train. Default: one, the version.
  std::vector<GlobalStep> pinned_versions;
  // Variables of this many elements for whose gradients each push has memory.
  std::map<size_t, size_t> memory;
  // What a call comes to; by its line in calls().
  std::map<std::string, absl::Status> errors;
  // How often WaitUntilDone, or WaitUntilHeld, returns false before the call
  // with this line may be made.
  std::map<std::string, int> delays;
  // Before the call with this line the job is rolled back: that call, and all
  // but the leave, fail until the next AwaitVariables, which fails while there
  // are handles. The second time the call is made, it does as always.
  struct RollBack {
    // That a pull finds then.
    uint64_t version = 0;
    // As `tickets`.
    std::deque<uint64_t> tickets;
  };
  std::map<std::string, RollBack> roll_backs;
  // The least version that a pull finds: where others are already.
  uint64_t first_version = 0;
  // What durable_step() says.
  GlobalStep durable;
  // What state() says.
  proto::JobPhase phase = proto::TRAINING;
  std::string reason;
  // Of a job that is done.
  std::optional<proto::TaskId> reporter;
  proto::GetStatusResponse status;
  // What NextEvaluation gives, in this order.
  std::deque<proto::CheckpointName> checkpoints;
  // All events, which GetEvents selects from, and the answer of GetHistory.
  std::vector<proto::Event> events;
  proto::GetHistoryResponse history;

  // One line per call, in their order:
  //   "declare", "await variables", "push #1 of step 0", "add 2",
  //   "add rows of 0",
  //   "await push #1", "contribute #1: step 0, seat 1, 8 examples",
  //   "await verdict #1", "pull 1", "await pull 1", "pin 4", "read 4",
  //   "report 4", "next evaluation", "report 4 of generation 1", "status",
  //   "events 0", "history 0", "await done", "cancel", "leave", "leave: why",
  //   "take ticket #1", "await ticket #1", "push #1 of ticket 0 at 5",
  //   "apply #1: 8 examples", "await applied #1"
  std::vector<std::string> calls() const;
  // Those of them that begin with `prefix`.
  std::vector<std::string> calls(const std::string& prefix) const;
  // Of the last call that begins with `prefix`.
  absl::Time deadline_of(const std::string& prefix) const;
  std::vector<Contribution> contributions() const;
  // By sequence.
  std::map<uint64_t, Contribution> applications() const;

  // Waits until an order to roll back has been carried out.
  void AwaitRollBack() const;

  // The gradients of push #n, by variable.
  std::map<size_t, std::vector<float>> pushed(uint64_t n) const;
  // Of the rows of push #n, by table and id.
  using Rows = std::map<uint64_t, std::vector<float>>;
  std::map<size_t, Rows> pushed_rows(uint64_t n) const;
  // The pushes whose gradients were written to before they were acknowledged or
  // applied.
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
  absl::StatusOr<proto::SetLearningRateResponse> SetLearningRate(
      const proto::SetLearningRateRequest& request,
      absl::Time deadline) override;
  absl::Status AwaitDone(absl::Time deadline) override;
  void Cancel() override;
  absl::Status Leave(const std::string& error, absl::Time deadline) override;
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
  // Counts the handles that there are.
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
  // Whether the call with this line is not delayed any more.
  bool IsDue(const std::string& line) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes the call down. What it is to come to.
  absl::Status Call(const std::string& line,
                    absl::Time deadline = absl::InfiniteFuture());
  void Fill(GlobalStep version, Parameters* into) const;
  // A ticket for the push, if there is one.
  std::optional<Ticket> GiveTicket(uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The push was contributed or is to be applied: its ticket is spent, or goes
  // to the next request.
  void DecideTicket(uint64_t sequence, proto::Verdict verdict);
  // Whether no ticket is left, and one that the worker holds is undecided.
  bool WaitsForOwnTicket() const;
  // The worker knows so, and may hold another one.
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
  // The greatest version that a pull has found; asynchronous: the pushes
  // awaited.
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  // Since the order was carried out, until the next AwaitVariables.
  std::optional<RollBack> roll_back_ ABSL_GUARDED_BY(mutex_);
  std::vector<proto::EvaluationResult> reports_;
  proto::Declaration declared_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_FAKE_CLUSTER_H_
