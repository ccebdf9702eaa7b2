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

// A worker's way through a job, for programs that compute gradients by
// themselves: hands out one turn after the other, each with the values to
// compute at, and takes a gradient for each. The turns are those of the C++
// worker (worker/trainer/synchronous_loop.h and asynchronous_loop.h), in the
// same order of calls, so the same gradients give the same values:
//
//   by step              each of the worker's seats in each step. With one seat
//                        all after the computation is one exchange.
//   by ticket            a ticket for each of its seats, taken when it is
//                        needed, in a step that has room for it.
//   asynchronous         ticket by ticket, with up to pipeline_depth pushes on
//                        their way.
//
//   for (;;) {
//     auto turn = loop.Next(absl::InfiniteFuture());
//     if ((*turn)->done) break;
//     ...  // compute the gradient of batch (*turn)->batch at loop.values()
//     loop.Add(variable, gradient);  // each trainable variable
//     loop.Contribute({examples, loss});
//   }
//
// Rows of embedding tables are read with ReadRows, and their gradients handed
// in with AddRows. Those that WantRows named before the pull came with the
// turn's values; others take a pull of their own, which reads rows and nothing
// else.
//
// When the job is rolled back, what is under way is dropped, the newest
// generation is entered, and the next turn says so. The loop does not leave the
// cluster.
//
// Thread-compatible, but the calls that it makes in the background only use
// what is theirs.
class TrainingLoop {
 public:
  struct Options {
    // The worker's place among the M replicas: seats i with i mod M equal to it
    // are its own.
    uint32_t replica = 0;
    // A roll-back ends the loop with ABORTED.
    bool strict = false;
    // Goes over to a new generation after a roll-back: declares, where that is
    // the worker's part, and waits for the variables. On a thread of its own.
    std::function<absl::Status()> enter;
    // The job was finished, or stopped, before the worker came: there are no
    // variables.
    bool finished_before = false;
    // Where the values of variable i are, in place of both sets, where
    // memory[i] is not null; of its size. Empty: nowhere else. It is written to
    // from Contribute until Next returns a turn, must stay until the loop is
    // destroyed, and holds anything after an error. The caller may change it
    // while the turn is its own.
    std::vector<absl::Span<float>> memory;
    // Calls wait for the job's timeouts and that much longer, so that the
    // coordinator, which knows who is late, speaks first.
    absl::Duration margin = absl::Seconds(30);
    // Told of what training time goes into: a turn, until it is contributed
    // to, is computation, apart from waits for input. Must outlive the loop.
    // Null: nobody is told.
    PhaseMeter* meter = nullptr;
    // How long the final values may be held for reading.
    absl::Duration pin_hold = absl::Minutes(10);
  };

  struct Turn {
    // The job is DONE, be it at its last step or, by early stopping, before; of
    // what follows only `rolled_back` and `step` are set.
    bool done = false;
    // The job went back to an earlier state since the turn before.
    bool rolled_back = false;
    // Of the training stream.
    uint64_t batch = 0;
    // Of the values.
    GlobalStep step;
    // Synchronous jobs only.
    uint32_t seat = 0;
    // That the gradient is computed with; it is pushed without it.
    float loss_scale = 1;
  };

  struct Gradient {
    // Behind it. 0: the turn is passed without a gradient.
    uint64_t examples = 0;
    // Mean over the examples. Absent: not known.
    std::optional<double> loss;
    // What it is multiplied by. Absent: what the declaration's global norm asks
    // for.
    std::optional<float> clip_factor;
  };

  // What the worker's pushes came to, those of steps that were rolled back
  // among them.
  struct Counts {
    uint64_t accepted = 0;
    uint64_t stale = 0;
    uint64_t duplicate = 0;
    // Turns passed because loss or gradient was not finite.
    uint64_t not_finite = 0;
    uint64_t roll_backs = 0;
    // Of the last push whose verdict is known.
    proto::Verdict verdict = proto::VERDICT_UNSPECIFIED;
    uint64_t staleness = 0;
  };

  // After AwaitVariables. All must outlive the loop. One that is begun when the
  // job was rolled back, as after a strict one, enters first.
  TrainingLoop(Cluster* cluster, BackgroundCalls* calls, const Clock* clock,
               Options options);

  ~TrainingLoop();

  TrainingLoop(const TrainingLoop&) = delete;
  TrainingLoop& operator=(const TrainingLoop&) = delete;

  // The next turn; nothing at `until`: then it goes on to wait when it is
  // called again. The gradients of the turn before are the caller's memory
  // again once a turn is returned.
  // Errors: FAILED_PRECONDITION when the turn was not contributed to, which
  // changes nothing; any other ends the loop: those of Cluster; ABORTED when
  // the worker was shut out, the job has failed or was stopped, or, strict, was
  // rolled back.
  absl::StatusOr<std::optional<Turn>> Next(absl::Time until);

  // By variable, of the last turn. Of a turn that is done: the final values,
  // those of the job's last version, or why they could not be read. They stay
  // as they are for as long as somebody has them (but where Options::memory has
  // them), and at least until the next Next: each of their sets is used again
  // when nobody has it any more. What is kept for longer than a turn may cost a
  // copy of each later version (docs/protocol/same_host.md, "Reading in
  // place").
  absl::StatusOr<std::shared_ptr<const Parameters>> values() const;
  // The same at a place that follows from the set: Parameters::AtFixedPlace.
  absl::StatusOr<std::vector<absl::Span<const float>>> ValuesAtFixedPlace();
  // Which of the sets, from 0. There are two while nobody keeps one.
  int values_set() const { return now_->number; }
  // Keeps the sets' memory when the loop has gone.
  std::shared_ptr<const void> memory() const { return sets_; }

  // As Cluster::Push::Memory, of the turn's push. Empty without a turn.
  absl::Span<float> Memory(size_t variable);

  // Hands in the gradient of a variable, as Push::Add does. What is wrong with
  // the push itself is told by Next.
  // Errors: FAILED_PRECONDITION without a turn; INVALID_ARGUMENT, as Push::Add.
  absl::Status Add(size_t variable, absl::Span<const float> gradient);

  // ---- Rows of embedding tables (docs/protocol/tables.md) ----

  // Has the next pull of values read these rows as well, in place of those that
  // were wanted before: it begins with Contribute, or in Next. A batch that is
  // known before its turn is read so without a wait; after a roll-back it is
  // another, and ReadRows reads what is missing.
  // Errors: INVALID_ARGUMENT for no such table, or one that is named twice;
  // then what was wanted before stays.
  absl::Status WantRows(absl::Span<const RowUse> rows);

  // Copies the values of rows, those of rows[i] to into[i], [ids, row_length]
  // in the order of the ids. All of them are of the turn's version, or of one
  // pull: in an asynchronous job the newest; in a synchronous one of the turn's
  // version, or of a newer one if the step has closed, in which case the turn's
  // push is STALE. Of a turn that is done: the final ones. False at `until`:
  // called again with the same rows, it goes on to wait.
  // Errors: FAILED_PRECONDITION without a turn; INVALID_ARGUMENT, naming the
  // table; both change nothing. Any other ends the turn: Next tells how the
  // loop goes on.
  absl::StatusOr<bool> ReadRows(absl::Span<const RowUse> rows,
                                absl::Span<const absl::Span<float>> into,
                                absl::Time until);

  // Hands in the gradients of all rows that the turn has of one table,
  // [ids, row_length]; those of an id that is there several times are added up.
  // Both are copied. A table that is not handed in has no rows in the push.
  // Errors: FAILED_PRECONDITION without a turn; INVALID_ARGUMENT, naming the
  // table, as Push::AddRows, and with row and element for a sum that is not
  // finite. The rows may be handed in again then; otherwise a turn with such a
  // sum is passed and counted.
  absl::Status AddRows(size_t table, absl::Span<const uint64_t> ids,
                       absl::Span<const float> gradients);

  // Ends the turn. Where the loss or a gradient is not finite, it is passed and
  // counted.
  // Errors, which change nothing: FAILED_PRECONDITION without a turn;
  // INVALID_ARGUMENT when a trainable variable was not handed in, or for a
  // number out of its range.
  absl::Status Contribute(const Gradient& gradient);

  // The caller begins to wait for its input, or no longer does: the meter is
  // told. Contribute and Next end such a wait.
  void WaitsForInput(bool waits);

  const Counts& counts() const { return counts_; }

 private:
  // What Next does next.
  enum class Stage {
    // After a roll-back: waits until `enter` has returned.
    kEnter,
    // Begins to train in this generation.
    kBegin,
    // Waits for the first values, or those after a step.
    kValues,
    // Synchronous. Hands out the turn for the next seat, or, when each has had
    // one or the step has no room, asks for the values after it.
    kSeat,
    // The turn is the caller's.
    kTurn,
    // Waits until the gradient's memory is the caller's again.
    kHeld,
    // Waits for verdict and values in one.
    kExchanged,
    // Waits for the verdicts on the step's pushes.
    kVerdicts,
    // Asynchronous. Waits for the oldest push, for a ticket, for values.
    kOldest,
    kTicket,
    kNewest,
    // There are no more tickets: waits for all pushes.
    kLast,
    // Waits until the job is DONE.
    kAwaitDone,
    kFinalValues,
    kDone,
  };
  // What came of it.
  enum class Progress { kOn, kLater, kTurn };

  // The gradients of the rows of one table that a push has.
  struct RowSums {
    client::RowBatch batch;
    std::vector<float> sums;
  };
  // What a push reads while it is under way.
  struct PushMemory {
    // By variable. Where pushes travel while the next gradient is computed: a
    // copy of it.
    std::vector<std::vector<float>> gradient;
    // By table.
    std::vector<RowSums> rows;
  };
  // A push that was begun and whose verdict is not known.
  struct Underway {
    std::string name;  // for messages
    PushMemory memory;
    // Destroyed before what it reads.
    std::unique_ptr<Cluster::Push> push;
  };

  // As declared.
  struct Mode {
    bool asynchronous = false;
    bool by_ticket = false;
    // Synchronous.
    uint32_t seats_per_step = 1;
    std::vector<uint32_t> seats;
    // Asynchronous.
    uint32_t pipeline_depth = 1;
    bool has_bound = false;
    // The most pushes that all workers may have booked while a request for a
    // ticket waits.
    uint64_t longest_wait = 1;
    std::optional<float> max_global_norm;
    GlobalStep total_steps;
    // What is pulled is what the shards hold.
    bool exact_pulls = true;
  };
  struct VariableFacts {
    std::string name;
    size_t size = 0;
    bool trainable = true;
    bool in_norm = true;
  };
  void ReadDeclaration();

  // Tells the meter what the stage's time goes into. A wait that Next goes on
  // with in another call stays one.
  void Meter();
  void Meter(PhaseMeter::Phase phase);
  // As PhaseMeter::BeginStep.
  void MeterStep(const char* what, uint64_t number);

  // One stage.
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

  // Synchronous: at a new version.
  void OpenStep();
  // Begins to ask for the values after the open step.
  void CloseStep();
  // Synchronous, by ticket: takes a ticket where none is at hand and there may
  // be one.
  absl::StatusOr<Progress> HaveTicket(absl::Time until);
  // Waits for the end of the oldest push.
  absl::StatusOr<Progress> FinishOldest(absl::Time until);
  Progress HandOut(Turn turn, std::string name,
                   std::unique_ptr<Cluster::Push> push);
  void BeginEnd();
  // From where they were read to.
  void TakeFinalValues();
  // What the error ends: a generation, or the loop. The error in the latter
  // case.
  absl::Status Recover(const absl::Status& error);
  void Drop();

  // Whether `handle` is done, or has been waited for too long: Await tells.
  // `count`: as of StepDeadline.
  template <typename Handle>
  bool IsReady(Handle* handle, absl::Time until, uint64_t count = 1);
  // For a call that waits until a step closes or, asynchronous, a push counts:
  // the next one, or the last of the next `count`.
  absl::Time StepDeadline(uint64_t count = 1) const;
  absl::Status OnOutcome(const Cluster::Outcome& outcome,
                         const std::string& push);

  bool exchanges() const;
  // A push travels while the next gradient is computed.
  bool pipelined() const { return mode_.pipeline_depth > 1; }
  // What has been pulled is what is computed on next.
  void Proceed() { now_ = std::exchange(next_, nullptr); }
  Parameters& now() { return now_->values; }
  Parameters& next() {
    if (next_ == nullptr) next_ = sets_->Take();
    return next_->values;
  }
  // The same, for a pull that begins: with the rows that are wanted.
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
  // What Add or Contribute came upon, for Next.
  absl::Status failed_;
  // The next turn says so.
  bool rolled_back_ = false;
  // Until when the wait that is going on goes on.
  std::optional<absl::Time> wait_ends_;
  std::shared_ptr<BackgroundCalls::Call> call_;

  const std::shared_ptr<client::ValueSets> sets_;
  std::shared_ptr<client::ValueSets::Set> now_;
  // Null while nothing is, or has been, pulled into it.
  std::shared_ptr<client::ValueSets::Set> next_;
  // While they are being read, also the background's.
  std::shared_ptr<Parameters> final_values_;
  absl::Status values_status_;

  // The turn that is the caller's.
  Turn turn_;
  // Of which variables there is a gradient.
  std::vector<bool> added_;
  size_t num_added_ = 0;
  bool finite_ = true;
  std::vector<double> squares_;
  Contribution contribution_;

  client::EmbeddingTables tables_;
  // Rows that the next pull is to read as well.
  client::RowRequest wanted_rows_;
  // What ReadRows reads: pulled where it did not come with the values.
  client::RowRequest row_request_;
  Parameters rows_;
  std::unique_ptr<Cluster::Pull> row_pull_;
  // By table: whether rows were handed in for the turn, or refused because they
  // are not finite; and the sum of their squares.
  enum class RowsOfTurn { kNone, kAdded, kNotFinite };
  std::vector<RowsOfTurn> rows_of_turn_;
  std::vector<double> row_squares_;

  // The oldest first; while there is a turn, the last is its own.
  std::deque<Underway> underway_;
  // Memory for those to come.
  std::vector<PushMemory> spare_;
  // The seats of the step that have had their turn.
  size_t seats_filled_ = 0;
  std::unique_ptr<Cluster::TicketRequest> request_;
  std::optional<Ticket> ticket_;
  // There are no more tickets.
  bool spent_ = false;
  std::unique_ptr<Cluster::Pull> pull_;
  // Asynchronous: values have come with the last push.
  bool pulled_ = false;

  Counts counts_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_TRAINING_LOOP_H_
