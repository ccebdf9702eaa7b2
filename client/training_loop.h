// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_TRAINING_LOOP_H_
#define HOLDFAST_CLIENT_TRAINING_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/background_calls.h"
#include "client/cluster.h"
#include "client/phase_meter.h"
#include "client/row_batch.h"
#include "client/row_request.h"
#include "client/value_sets.h"
#include "common/base/clock.h"
#include "common/job/ids.h"

namespace holdfast {

// A worker's training loop, for programs that compute gradients themselves:
// hands out one turn after the other, each with the values to compute the
// gradient at, and takes a gradient for each. It makes the same calls in the
// same order as the C++ worker (worker/trainer/synchronous_loop.h and
// asynchronous_loop.h), so the same gradients give the same values:
//
//   by step              each of the worker's seats in each step. With one seat
//                        everything after the computation is one exchange.
//   by ticket            a ticket for each of its seats, taken when it is
//                        needed, in a step that has room for it.
//   asynchronous         ticket by ticket, with up to pipeline_depth pushes in
//                        progress.
//
//   for (;;) {
//     auto turn = loop.Next(absl::InfiniteFuture());
//     if ((*turn)->done) break;
//     ...  // compute the gradient of batch (*turn)->batch at loop.values()
//     loop.Add(variable, gradient);  // each trainable variable
//     loop.Contribute({examples, loss});
//   }
//
// Rows of embedding tables are read with ReadRows, and their gradients are
// handed in with AddRows. Rows that WantRows named before the pull arrive with
// the turn's values; others take a separate pull, which reads only rows.
//
// When the job is rolled back, the loop drops operations in progress, enters
// the newest generation, and says so in the next turn. The loop does not leave
// the cluster.
//
// Thread-compatible. Its background calls use only state of their own.
class TrainingLoop {
 public:
  // The values of a checkpoint.
  using Checkpoint = absl::StatusOr<std::shared_ptr<const Parameters>>;

  struct Options {
    // The worker's index among the M replicas: its seats i are those with i mod
    // M equal to this.
    uint32_t replica = 0;
    // Whether a roll-back ends the loop with ABORTED.
    bool strict = false;
    // Enters a new generation after a roll-back: declares, if this worker does
    // so, and waits for the variables. Called on a separate thread.
    std::function<absl::Status()> enter;
    // Whether the job had finished, or was stopped, before the worker joined.
    // Then the ps have no variables.
    bool finished_before = false;
    // Reads the final values of a job that is done from its last checkpoint;
    // the loop calls it if the ps no longer have them, on a separate thread or,
    // if `finished_before`, in its constructor. Must outlive the loop's
    // background calls. Empty: there is no way to read them.
    std::function<Checkpoint()> last_checkpoint;
    // Whether the caller has asked for the end of the job (Cluster::Finish).
    // From then on Next passes the current turn, and all further ones, without
    // a gradient, until the job is done. Empty: never.
    std::function<bool()> finishing;
    // If memory[i] is not null, the values of variable i are written there
    // instead of to the loop's own memory; memory[i] must have the variable's
    // size. May be empty. The memory is written to from Contribute until Next
    // returns a turn; during a turn the caller may change it. It must stay
    // valid until the loop is destroyed; after an error its content is
    // unspecified.
    std::vector<absl::Span<float>> memory;
    // Calls wait this much longer than the job's timeouts, so that the
    // coordinator, which knows which task is late, reports the error first.
    absl::Duration margin = absl::Seconds(30);
    // Measures where training time goes: a turn, until its Contribute, counts
    // as computation, except for waits for input. Must outlive the loop. Null:
    // nothing is measured.
    PhaseMeter* meter = nullptr;
    // How long the final values are pinned for reading, at most.
    absl::Duration pin_hold = absl::Minutes(10);
  };

  struct Turn {
    // Whether the job is DONE, at its last step or earlier by early stopping.
    // Then only `rolled_back` and `step` are set of the fields below.
    bool done = false;
    // Whether the job has rolled back to an earlier state since the previous
    // turn.
    bool rolled_back = false;
    // The number of turns that the loop has handed out, with this one. No two
    // turns have the same, not even those of a batch that is handed out again.
    uint64_t number = 0;
    // The batch of the training stream to compute the gradient of.
    uint64_t batch = 0;
    // The version of the values.
    GlobalStep step;
    // Synchronous jobs only.
    uint32_t seat = 0;
    // The loss scale to compute the gradient with; the gradient is divided by
    // it before it is pushed.
    float loss_scale = 1;
  };

  struct Gradient {
    // Number of examples that the gradient was computed on. 0: the turn is
    // passed without a gradient.
    uint64_t examples = 0;
    // Mean loss over the examples. Absent: unknown.
    std::optional<double> loss;
    // The factor that the gradient is multiplied by. Absent: the factor
    // required by the declaration's global norm.
    std::optional<float> clip_factor;
  };

  // Outcomes of the worker's pushes, including those of steps that were rolled
  // back.
  struct Counts {
    uint64_t accepted = 0;
    uint64_t stale = 0;
    uint64_t duplicate = 0;
    // Turns passed because the loss or a gradient was not finite.
    uint64_t not_finite = 0;
    uint64_t roll_backs = 0;
    // Verdict and staleness of the last push whose verdict is known.
    proto::Verdict verdict = proto::VERDICT_UNSPECIFIED;
    uint64_t staleness = 0;
  };

  // Must be constructed after AwaitVariables. All arguments must outlive the
  // loop. If the job was rolled back before, for example after a strict loop,
  // this loop first enters the new generation.
  TrainingLoop(Cluster* cluster, BackgroundCalls* calls, const Clock* clock,
               Options options);

  ~TrainingLoop();

  TrainingLoop(const TrainingLoop&) = delete;
  TrainingLoop& operator=(const TrainingLoop&) = delete;

  // Returns the next turn; nullopt at `until`, after which another call resumes
  // the wait. With Options::finishing the next turn is the one that is done.
  // Once a turn is returned, the memory of the previous turn's gradients
  // belongs to the caller again.
  // Errors: FAILED_PRECONDITION if the turn was not contributed to, which
  // changes nothing. Any other error ends the loop: those of Cluster; ABORTED
  // if the worker was fenced, the job has failed or was stopped, or, in a
  // strict loop, was rolled back.
  absl::StatusOr<std::optional<Turn>> Next(absl::Time until);

  // Returns what Next returned last, without waiting: the turn that was handed
  // out and not contributed, or the one that is done. Returns nullopt if only
  // Next can say what follows.
  std::optional<Turn> Current() const;

  // Forgets all gradients and rows that were handed in for the turn, whose
  // memory belongs to the caller again when this returns. They may all be
  // handed in again for the same turn, changed or not; only those count.
  // Errors: FAILED_PRECONDITION without a turn.
  absl::Status Restart();
  // Whether a gradient or rows were handed in for the turn.
  bool has_handed_in() const { return handed_in_; }

  // Returns the values of the last turn. If that turn is done (Turn::done),
  // returns the final values, which have the job's last version, or the error
  // because of which neither the ps nor the last checkpoint has them. Values
  // stay unchanged while the
  // caller keeps the pointer (except those in Options::memory), and at least
  // until the next call of Next. The object and its memory, a set, are reused
  // for later values once no pointer to it is left. Keeping values for longer
  // than a turn may cost a copy of each later version
  // (docs/protocol/same_host.md, "Reading in place").
  absl::StatusOr<std::shared_ptr<const Parameters>> values() const;
  // Returns the same values, indexed by variable, at addresses that are fixed
  // for each set: see Parameters::AtFixedPlace.
  absl::StatusOr<std::vector<absl::Span<const float>>> ValuesAtFixedPlace();
  // The number of the set that holds the values, from 0. There are two sets,
  // and more if a caller keeps the pointer to one.
  int values_set() const { return now_->number; }
  // Keeps the sets' memory alive after the loop is destroyed.
  std::shared_ptr<const void> memory() const { return sets_; }

  // Returns Cluster::Push::Memory of the turn's push, or an empty span if there
  // is no turn.
  absl::Span<float> Memory(size_t variable);

  // Hands in the gradient of a variable, as Push::Add does. A variable without
  // elements need not be handed in. Errors of the push itself are returned by
  // Next.
  // Errors: FAILED_PRECONDITION without a turn; INVALID_ARGUMENT, as for
  // Push::Add.
  absl::Status Add(size_t variable, absl::Span<const float> gradient);

  // ---- Rows of embedding tables (docs/protocol/tables.md) ----

  // Makes the next pull of values, which begins in Contribute or in Next, read
  // these rows as well, instead of those wanted before. This way the rows of a
  // batch that is known before its turn are read without a wait. After a
  // roll-back the batch is a different one, and ReadRows reads what is missing.
  // Errors: INVALID_ARGUMENT for a table that does not exist or is named twice;
  // then the rows wanted before remain.
  absl::Status WantRows(absl::Span<const RowUse> rows);

  // Copies the values of rows[i] to into[i], [ids, row_length] in the order of
  // the ids. All rows come from the pull of the turn's values, or from one
  // other pull. If from another pull, they are the newest rows in an
  // asynchronous job; in a synchronous job they have the turn's version, or a
  // newer one if the step has closed, in which case the turn's push is STALE.
  // If the turn is done, they are the final values. Returns false at `until`;
  // another call with the same rows resumes the wait.
  // Errors: FAILED_PRECONDITION without a turn; INVALID_ARGUMENT, naming the
  // table; both change nothing. Any other error ends the turn; Next then
  // determines how the loop continues.
  absl::StatusOr<bool> ReadRows(absl::Span<const RowUse> rows,
                                absl::Span<const absl::Span<float>> into,
                                absl::Time until);

  // Hands in the gradients of all of the turn's rows of one table, [ids,
  // row_length]; gradients of a repeated id are summed. Both arguments are
  // copied. A table that is not handed in has no rows in the push.
  // Errors: FAILED_PRECONDITION without a turn; INVALID_ARGUMENT, naming the
  // table, as for Push::AddRows, or, with the row and element, for a sum that
  // is not finite. The rows may then be handed in again; otherwise a turn with
  // such a sum is passed and counted.
  absl::Status AddRows(size_t table, absl::Span<const uint64_t> ids,
                       absl::Span<const float> gradients);

  // Ends the turn, and makes the push of the gradients count. If the loss or a
  // gradient is not finite, the turn is passed without a gradient, and counted
  // (Counts::not_finite).
  // Errors, which change nothing: FAILED_PRECONDITION without a turn;
  // INVALID_ARGUMENT if a trainable variable was not handed in, or for a number
  // out of range.
  absl::Status Contribute(const Gradient& gradient);

  // Tells the meter that the caller begins or stops waiting for its input.
  // Contribute and Next end such a wait.
  void WaitsForInput(bool waits);

  const Counts& counts() const { return counts_; }
  // Whether the final values are those of the last checkpoint. Then there are
  // no rows to read.
  bool from_checkpoint() const { return from_checkpoint_; }

 private:
  // What Next does next.
  enum class Stage {
    // After a roll-back: waits until Options::enter has returned.
    kEnter,
    // Begins training in this generation.
    kBegin,
    // Waits for the first values, or the values after a step.
    kValues,
    // Synchronous. Hands out the turn for the next seat, or, if every seat has
    // had one or the step has no room, requests the values after the step.
    kSeat,
    // The caller has the turn.
    kTurn,
    // Waits until the gradient's memory belongs to the caller again.
    kHeld,
    // Waits for verdict and values together.
    kExchanged,
    // Waits for the verdicts on the step's pushes.
    kVerdicts,
    // Asynchronous. kOldest waits for the oldest push, kTicket for a ticket,
    // and kNewest for values.
    kOldest,
    kTicket,
    kNewest,
    // There are no more tickets; waits for all pushes.
    kLast,
    // Waits until the job is DONE.
    kAwaitDone,
    kFinalValues,
    kDone,
  };
  // The result of a stage: go to the next one, wait longer, or hand out a turn.
  enum class Progress { kOn, kLater, kTurn };

  // The gradients of a push's rows of one table.
  struct RowSums {
    client::RowBatch batch;
    std::vector<float> sums;
  };
  // Memory that a push reads while it is in progress.
  struct PushMemory {
    // Indexed by variable. Copies of the gradients, if pushes are in progress
    // while the next gradient is computed.
    std::vector<std::vector<float>> gradient;
    // Indexed by table.
    std::vector<RowSums> rows;
  };
  // A push that was started and whose verdict is not known.
  struct Underway {
    std::string name;  // for messages
    PushMemory memory;
    // Destroyed before what it reads.
    std::unique_ptr<Cluster::Push> push;
  };

  // Properties of the declaration.
  struct Mode {
    bool asynchronous = false;
    bool by_ticket = false;
    // Synchronous:
    uint32_t seats_per_step = 1;
    std::vector<uint32_t> seats;
    // Asynchronous:
    uint32_t pipeline_depth = 1;
    bool has_bound = false;
    // The maximum number of pushes of all workers that may be booked while a
    // request for a ticket waits.
    uint64_t longest_wait = 1;
    std::optional<float> max_global_norm;
    GlobalStep total_steps;
    // Pulls return exactly the values that the shards hold.
    bool exact_pulls = true;
  };
  struct VariableFacts {
    std::string name;
    size_t size = 0;
    bool trainable = true;
    bool in_norm = true;
  };
  void ReadDeclaration();

  // Sets the meter's phase for the current stage. A wait that continues in
  // another call of Next counts as one.
  void Meter();
  void Meter(PhaseMeter::Phase phase);
  // See PhaseMeter::BeginStep.
  void MeterStep(const char* what, uint64_t number);

  // Runs one stage.
  absl::StatusOr<Progress> Advance(absl::Time until);
  absl::StatusOr<Progress> Enter(absl::Time until);
  absl::StatusOr<Progress> Begin();
  absl::StatusOr<Progress> AwaitValues(absl::Time until);
  absl::StatusOr<Progress> TakeSeat(absl::Time until);
  absl::StatusOr<Progress> AwaitHeld(absl::Time until);
  absl::StatusOr<Progress> AwaitExchanged(absl::Time until);
  absl::StatusOr<Progress> AwaitVerdicts(absl::Time until);
  absl::StatusOr<Progress> AwaitOldest(absl::Time until);
  absl::StatusOr<Progress> AwaitTicket(absl::Time until);
  absl::StatusOr<Progress> AwaitNewest(absl::Time until);
  absl::StatusOr<Progress> AwaitLast(absl::Time until);
  absl::StatusOr<Progress> AwaitDone(absl::Time until);
  absl::StatusOr<Progress> AwaitFinalValues(absl::Time until);

  // Synchronous: starts the step at a new version.
  void OpenStep();
  // Starts requesting the values after the open step.
  void CloseStep();
  // Synchronous, by ticket: takes a ticket, unless the worker has one or there
  // are no more.
  absl::StatusOr<Progress> HaveTicket(absl::Time until);
  // Waits for the end of the oldest push.
  absl::StatusOr<Progress> FinishOldest(absl::Time until);
  Progress HandOut(Turn turn, std::string name,
                   std::unique_ptr<Cluster::Push> push);
  // Notes that nothing has been handed in for the turn.
  void ForgetHandedIn();
  void BeginEnd();
  // Copies the final values.
  void TakeFinalValues(const Parameters& values);
  // Takes the final values from the last checkpoint, because the ps do not have
  // them, as `why` explains.
  void TakeLastCheckpoint(const Checkpoint& from, const std::string& why);
  bool finishing() const { return options_.finishing && options_.finishing(); }
  // Handles an error. Returns it if it ends the loop; otherwise it ends only
  // work in the current generation, and the loop continues.
  absl::Status Recover(const absl::Status& error);
  void Drop();

  // Whether `handle` is done, or the wait for it has timed out, so that Await
  // returns at once. `count`: see StepDeadline.
  template <typename Handle>
  bool IsReady(Handle* handle, absl::Time until, uint64_t count = 1);
  // The deadline for a call that waits until `count` more steps have closed or,
  // asynchronous, `count` more pushes have counted.
  absl::Time StepDeadline(uint64_t count = 1) const;
  absl::Status OnOutcome(const Cluster::Outcome& outcome,
                         const std::string& push);

  bool exchanges() const;
  // Whether a push is in progress while the next gradient is computed.
  bool pipelined() const { return mode_.pipeline_depth > 1; }
  // Makes the pulled values the current ones.
  void Proceed() { now_ = std::exchange(next_, nullptr); }
  Parameters& now() { return now_->values; }
  Parameters& next() {
    if (next_ == nullptr) next_ = sets_->Take();
    return next_->values;
  }
  // next(), prepared for a new pull, with the wanted rows.
  Parameters& PullInto();

  Cluster& cluster_;
  BackgroundCalls& calls_;
  const Clock& clock_;
  const Options options_;
  Mode mode_;
  std::vector<VariableFacts> variables_;
  size_t num_trainable_ = 0;

  Stage stage_ = Stage::kBegin;
  // Why the loop has ended.
  absl::Status broken_;
  // An error of Add or Contribute, to be handled by Next.
  absl::Status failed_;
  // The value of Turn::rolled_back in the next turn.
  bool rolled_back_ = false;
  // The deadline of the current wait.
  std::optional<absl::Time> wait_ends_;
  std::shared_ptr<BackgroundCalls::Call> call_;

  const std::shared_ptr<client::ValueSets> sets_;
  std::shared_ptr<client::ValueSets::Set> now_;
  // Null while nothing is being, or has been, pulled into it.
  std::shared_ptr<client::ValueSets::Set> next_;
  // The final values. Shared with the background call that reads them.
  std::shared_ptr<Parameters> final_values_;
  // What Options::last_checkpoint has returned to that call, if it was needed.
  std::shared_ptr<Checkpoint> last_checkpoint_;
  bool from_checkpoint_ = false;
  absl::Status values_status_;

  // The caller's turn.
  Turn turn_;
  uint64_t num_turns_ = 0;
  bool handed_in_ = false;
  // Indexed by variable: whether its gradient was handed in.
  std::vector<bool> added_;
  size_t num_added_ = 0;
  bool finite_ = true;
  std::vector<double> squares_;
  Contribution contribution_;

  client::EmbeddingTables tables_;
  // The rows that the next pull also reads (WantRows).
  client::RowRequest wanted_rows_;
  // The rows that ReadRows reads. They are pulled if they did not come with the
  // values.
  client::RowRequest row_request_;
  Parameters rows_;
  std::unique_ptr<Cluster::Pull> row_pull_;
  // Indexed by table: whether rows were handed in for the turn, or refused
  // because they are not finite; and the sum of the squares of their gradients.
  enum class RowsOfTurn { kNone, kAdded, kNotFinite };
  std::vector<RowsOfTurn> rows_of_turn_;
  std::vector<double> row_squares_;

  // The oldest first; during a turn, the last one is the turn's push.
  std::deque<Underway> underway_;
  // Memory for future pushes.
  std::vector<PushMemory> spare_;
  // The number of the step's seats that have had their turn.
  size_t seats_filled_ = 0;
  std::unique_ptr<Cluster::TicketRequest> request_;
  std::optional<Ticket> ticket_;
  // There are no more tickets.
  bool spent_ = false;
  std::unique_ptr<Cluster::Pull> pull_;
  // In asynchronous jobs: whether values have arrived with the last push.
  bool pulled_ = false;

  Counts counts_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_TRAINING_LOOP_H_
