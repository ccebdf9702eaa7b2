#ifndef HOLDFAST_CLIENT_CLUSTER_H_
#define HOLDFAST_CLIENT_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/first_values.h"
#include "client/parameters.h"
#include "common/job/cluster_spec.h"
#include "common/job/ids.h"
#include "common/job/task_id.h"
#include "common/process/host_memory.h"
#include "common/rpc/credentials.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/task_report.h"
#include "common/rpc/timeouts.h"
#include "common/trace/trace.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// The right to push once (docs/protocol/asynchronous.md).
struct Ticket {
  // Of the push that it is for.
  PushSequence sequence;
  // Fixes the examples: batch `index` of the training stream.
  uint64_t index = 0;
  // By the declaration's optimizers. Asynchronous jobs only.
  std::vector<proto::StepScalars> scalars;
  // Proves to the shards that `scalars` are its own. Asynchronous jobs only.
  uint64_t receipt = 0;
  // As in Parameters. Asynchronous jobs only.
  float loss_scale = 1;
  // The open step (synchronous) or the tickets spent when it was given.
  GlobalStep global_step;
};

// What a push gives to the model.
struct Contribution {
  // Synchronous jobs only: its place in the step. seat mod M must be the
  // caller's replica index.
  uint32_t seat = 0;
  // Behind the gradient. 0: it changes nothing, whatever was handed in of it,
  // but takes its seat, or spends its ticket.
  uint64_t examples = 0;
  // The gradient is multiplied by this at the shards.
  float clip_factor = 1;
  // Mean loss over the examples, for people. Absent: not known.
  std::optional<double> loss;
  // There are no examples because loss or gradient was not finite: it is
  // counted, and lowers the loss scale where the job has one.
  bool not_finite = false;
};

// One task's connection to a cluster: the way in which workers, tools and tests
// declare, push, pull, pin and ask.
//
// A worker does, in short:
//
//   auto cluster = Cluster::Connect(options);
//   (*cluster)->Declare(declaration, deadline);
//   (*cluster)->AwaitVariables(deadline);
//   Parameters now, next;
//   (*cluster)->StartPull(GlobalStep(0), &now)->Await(deadline);
//   for (;;) {
//     auto push = (*cluster)->StartPush(now.version);
//     push->Add(variable, gradient);  // each variable, in any order
//     push->AddRows(table, ids, gradients);  // each table, as well
//     next.WantRows(table, ids_of_next_batch);
//     push->Contribute({seat, examples, clip_factor, loss}, &next);
//     auto outcome = push->Await(deadline);  // the verdict; and `next` is here
//     std::swap(now, next);
//   }
//
// In an asynchronous job it takes a ticket for each push, and asks for the next
// one meanwhile:
//
//   auto request = (*cluster)->StartTakeTicket();
//   for (;;) {
//     auto ticket = request->Await(deadline);
//     if (!(*ticket).has_value()) break;  // the job is DONE
//     request = (*cluster)->StartTakeTicket();
//     auto push = (*cluster)->StartPush(**ticket, now);
//     ...  // as above
//   }
//
// In a synchronous job whose examples are by ticket, it asks for the next one
// when the push before it is contributed: the last step stays open for tickets
// that are held for later.
//
// What is started is under way until its Await has returned: gradients leave
// while others are being computed, and a worker may have several pushes, pulls
// and requests under way at a time.
//
// Deadlines are times of the steady clock (common/base/clock.h), as SteadyNow()
// + absl::Seconds(30): dates are not.
//
// What goes wrong on the wire is tried again, with the same meaning, until the
// call's deadline, also when a ps is away for long; a push counts once however
// often it was sent. When a shard has lost its state, the job goes back to an
// earlier one, and what was under way says ABORTED: see rolled_back().
//
// Errors name the task that was spoken to or waited for. Errors common to all
// calls:
//   ABORTED              the job has failed, or was stopped, as state() tells;
//                        the message is its reason. Or this worker was shut
//                        out. Or, where rolled_back(), it went back to an
//                        earlier state.
//   UNAVAILABLE          a ps could not be reached until the deadline, or the
//                        coordinator was silent for recovery_timeout.
//   DEADLINE_EXCEEDED    what was waited for did not come; the message says
//                        what.
//   FAILED_PRECONDITION  the call needs AwaitVariables first, or a registered
//                        task; or what it waits for will not come, because the
//                        job is DONE.
//   INTERNAL             a ps answered what cannot be; the message names it.
// A ps without room for a push is no error: it is sent again, after a pause,
// until the deadline, whose error then says so.
//
// An Await that returns an error ends its handle: what is on its way is given
// up, the memory is the caller's again, and each further Await returns the same
// error. A handle may be destroyed at any time, with the same effect.
//
// Thread-safe. Handles (Push and the like) are thread-compatible, may be used
// from different threads, and must not outlive the Cluster.
class Cluster {
 public:
  struct Options {
    ClusterSpec cluster;
    // Who the caller is. A worker or chief registers and holds a lease; the
    // default only reads.
    TaskId task = {kClientJob, 0};
    // Has a worker or evaluator look at the job before it registers: without a
    // lease, and beside the process that may hold its place.
    bool only_reads = false;
    // Of that task, or an operator's for one that only reads. Default: nothing
    // is encrypted.
    Credentials credentials;
    // Of job file and data; workers whose digests differ are refused.
    std::string job_digest;
    std::string data_digest;
    // What a worker is about to declare; optional. Where the worker is refused
    // for its job file, the error then names the first field that differs from
    // what was declared.
    std::optional<proto::Declaration> declaration;
    // Until every ps answers.
    absl::Duration connect_timeout = kDefaultTimeout;
    // Whether a client that only reads gives up as soon as it is certain why a
    // ps cannot be reached, as when nothing listens there. For tools: tasks
    // start in any order, and wait.
    bool fail_fast = false;
    // How long the coordinator may be silent before all calls fail. A longer
    // one leaves it more time to come back.
    absl::Duration recovery_timeout = kDefaultTimeout;
    // Bytes of tensors in one call, at most.
    int64_t part_bytes = kPartBytes;
    // Whether tensors pass through shared memory where a ps is on this host
    // (docs/protocol/same_host.md). Memory of it: the gradients
    // of as many pushes as are under way, or kept by a ps, at a time.
    bool same_host = true;
    // Only with a ps whose socket is in this directory, as a volume that
    // containers share; empty: wherever it is.
    std::string same_host_dir;
    // Pins what is read of a ps of this host where it lies, for a device to
    // copy from. Values that come otherwise lie where their Parameters take
    // memory (Parameters::SetHostMemory). Must outlive the cluster and all
    // Parameters. Null: nothing is pinned.
    HostMemory* host_memory = nullptr;
    // Asked with each renewal of the lease, by a thread of the cluster's: what
    // this worker has to tell about itself (as PhaseMeter::Report). Must not
    // block. May be empty.
    std::function<TaskReport()> report;
    // Asked at least each few seconds while connecting: whether to give up,
    // with CANCELLED. May be empty.
    std::function<bool()> give_up;
    // Told by the thread that waits, while a call waits for somebody longer
    // than two seconds, and each ten from then on: what it waits for, and why.
    // Several threads may wait at a time. May be empty.
    std::function<void(const std::string& what)> on_waiting;
    // Where each attempt of an RPC is recorded (docs/operating/tracing.md);
    // those of the lease are not. Must outlive the cluster. Null: nowhere.
    Tracer* tracer = nullptr;
    // The same on demand, for traces of the whole cluster, in which the task
    // then has a part. Must outlive the cluster. Null: it has none.
    Tracer* cluster_tracer = nullptr;
  };

  // What became of a push.
  struct Outcome {
    proto::Verdict verdict;
    // Synchronous jobs: the open step when the verdict was told.
    GlobalStep global_step;
    // Asynchronous jobs: the greatest of the shards' counts of pushes applied
    // between the version that the gradient was computed on and this one.
    uint64_t staleness = 0;
  };

  // What is under way for its caller.
  class Handle {
   public:
    virtual ~Handle() = default;
    // Whether Await would return without a wait: what it waits for is here, or
    // will not come any more.
    virtual bool done() const = 0;
  };

  // A gradient on its way into the model. It is done when its verdict, and the
  // values that were asked for with it, are here.
  class Push : public Handle {
   public:
    virtual PushSequence sequence() const = 0;
    // Memory for the whole gradient of one variable, row-major, that a ps of
    // this host reads where it lies: what is written there, then handed in by
    // Add, is not copied. What it says at first is not specified; it may be
    // touched until Add; and read until AwaitHeld or Await has returned, the
    // push is destroyed, or contributed with 0 examples. Empty where there is
    // none: Add takes any memory.
    virtual absl::Span<float> Memory(size_t /*variable*/) { return {}; }
    // Hands in the gradient of one variable (its index as declared), whole and
    // row-major; parts that it completes leave at once, but where all of the
    // push fits in one message with what follows it. The memory must stay as it
    // is until AwaitHeld or Await has returned or the push is destroyed.
    // Errors: INVALID_ARGUMENT for a wrong index, length, a variable that is
    // not trainable, or one handed in before; RESOURCE_EXHAUSTED, UNAVAILABLE
    // when no memory can be shared with a ps of this host; why the push has
    // failed already.
    virtual absl::Status Add(size_t variable,
                             absl::Span<const float> gradient) = 0;
    // Hands in the gradients of all rows of one embedding table that the push
    // has: `ids` rise, each is there once, and the gradients follow each other
    // in that order (client/row_batch.h makes both). The memory of both must
    // stay as for Add. A table that has not been handed in before AwaitHeld or
    // Contribute has no rows in the push. As the number of parts is told with
    // the first, nothing leaves before that, or before each table was handed
    // in: an empty one is best handed in, too.
    // Errors: INVALID_ARGUMENT, naming the table, for a wrong index, ids that
    // do not rise, gradients of another length, more than max_rows_per_push
    // rows, a table handed in before, or after AwaitHeld or Contribute; why the
    // push has failed already.
    virtual absl::Status AddRows(size_t table, absl::Span<const uint64_t> ids,
                                 absl::Span<const float> gradients) = 0;

    // Waits until AwaitHeld would return at once, or until the time, and
    // returns whether it would. See WaitUntilDone.
    virtual bool WaitUntilHeld(absl::Time until) = 0;
    // Waits until every shard has acknowledged all of the gradient, whose
    // memory is then the caller's again: for those who need it before the
    // verdict, as a worker that computes several pushes of a step in the same
    // memory. Before Contribute, or not at all. OK also where the push is
    // decided already: Contribute and Await tell how.
    // Errors: FAILED_PRECONDITION when a trainable variable was not handed in,
    // or after Contribute; those of Shard.Push but RESOURCE_EXHAUSTED.
    virtual absl::Status AwaitHeld(absl::Time deadline) = 0;

    // Has the push count as soon as every shard has acknowledged every part,
    // without a thread that waits: a synchronous job's is offered to its step,
    // an asynchronous one's applied on every shard. Then pulls the version
    // after the step's, or a newer one, in asynchronous jobs the newest, into
    // `next` (null: does not pull), with the rows that it wants. Where there is
    // one ps, and the gradient fits in one message, as do the values where
    // there are rows, all in one round trip. To be called once, when all
    // gradients were handed in, or, with 0 examples, at any time: then nothing
    // more of the gradient is sent, and its memory is the caller's. `next` must
    // not be touched until Await has returned or the push is destroyed. Errors:
    // FAILED_PRECONDITION when a trainable variable was not handed in, or when
    // called before, and INVALID_ARGUMENT for an asynchronous push with a loss
    // that is not finite, or a `next` that wants rows of no table, or ids that
    // do not rise, which leave it as it is; why it has failed already.
    virtual absl::Status Contribute(const Contribution& contribution,
                                    Parameters* next = nullptr) = 0;

    // Waits until done(), or until the time, and returns done(). Ends nothing:
    // for callers who cannot wait for long at a time.
    virtual bool WaitUntilDone(absl::Time until) = 0;
    // Waits for the verdict and, where it was asked for, for `next`, which does
    // not come after FENCED: this worker has been shut out. ACCEPTED is told to
    // the coordinator by itself, also when nobody waits.
    // An asynchronous worker's pushes are applied in order, so one that is let
    // go of before this leaves the later ones waiting for it. Before Contribute
    // it may be started again, with the same gradient or with 0 examples;
    // after, it may be applied on some shards, and the worker has to leave.
    // Errors: FAILED_PRECONDITION before Contribute; those of Shard.Push but
    // RESOURCE_EXHAUSTED, of Coordinator.Contribute or Shard.Apply, and of
    // Pull::Await.
    virtual absl::StatusOr<Outcome> Await(absl::Time deadline) = 0;
  };

  // A request for a ticket. The ticket of one that is let go of before Await
  // has returned it is the next one's.
  class TicketRequest : public Handle {
   public:
    // As that of Push.
    virtual bool WaitUntilDone(absl::Time until) = 0;
    // Nothing: the job is DONE, there are no more tickets.
    // Errors: those of Coordinator.TakeTicket; ABORTED when this worker has
    // been shut out.
    virtual absl::StatusOr<std::optional<Ticket>> Await(
        absl::Time deadline) = 0;
  };

  // A pull that waits for its version.
  class Pull : public Handle {
   public:
    // As that of Push.
    virtual bool WaitUntilDone(absl::Time until) = 0;
    // On success all of `into` is of one version, unless the job is
    // asynchronous. On an error its content is not specified.
    virtual absl::Status Await(absl::Time deadline) = 0;
  };

  // A version held on every shard, in asynchronous jobs each shard's own. Let
  // go when destroyed.
  class Pin {
   public:
    virtual ~Pin() = default;
    // Asynchronous: as Parameters::version.
    virtual GlobalStep version() const = 0;
    // Reads the pinned version, as Cluster::StartPull does the newest. Errors:
    // NOT_FOUND when its time is up.
    virtual std::unique_ptr<Pull> StartRead(Parameters* into) = 0;
  };

  // Connects to every ps of the cluster, which may start later, and registers
  // unless options.task is a client.
  // Errors: those of Coordinator.Register (proto/coordinator.proto);
  // UNAVAILABLE with the name of a ps that did not answer in time, and why;
  // INVALID_ARGUMENT when something else than that ps is at its address, for
  // good: another ps, a ps of another training, another server.
  static absl::StatusOr<std::unique_ptr<Cluster>> Connect(Options options);

  // Without a Leave before it, leaves with an error, so that others need not
  // wait for the lease to run out. An evaluator leaves without one: nobody
  // waits for it.
  virtual ~Cluster() = default;

  // Errors: INVALID_ARGUMENT, ALREADY_EXISTS: see Coordinator.Declare.
  virtual absl::Status Declare(const proto::Declaration& declaration,
                               absl::Time deadline) = 0;
  // Waits until the variables exist on every shard. All below that names no
  // other time is to be called after it, and belongs to the generation of the
  // job that it was called in. Again: when the job has rolled back, goes over
  // to the newest generation, where sequences begin anew; otherwise does
  // nothing.
  absl::Status AwaitVariables(absl::Time deadline) {
    return AwaitVariables(deadline, nullptr);
  }
  // The same, and gives the cluster the first values of all variables that are
  // declared as `given`, if it wants them: where no checkpoint holds them.
  // `first_values` is called by this thread, and may be empty: then others give
  // them. Several workers may, for all have the same.
  // Errors: INVALID_ARGUMENT, naming the variable, when what it tells is not
  // what was declared; its own.
  virtual absl::Status AwaitVariables(absl::Time deadline,
                                      const FirstValues& first_values) = 0;
  // True when the job has begun another generation than the one that
  // AwaitVariables was called in: a shard had lost its state, and the job goes
  // on from an earlier one (docs/protocol/recovery.md, G6). What is under way
  // fails with ABORTED. Let go of all handles, then call AwaitVariables again,
  // and go on from a pull. A client that only reads learns of it when a call
  // fails so.
  virtual bool rolled_back() const = 0;
  // What was declared, with defaults filled in (N and M): the same in all
  // generations.
  virtual const proto::Declaration& declaration() const = 0;

  // A push without a ticket: synchronous jobs whose examples are by step. Takes
  // a new sequence. `step`: the version that the gradient is computed on.
  virtual std::unique_ptr<Push> StartPush(GlobalStep step) = 0;
  // The push of a ticket, under its sequence, computed on `at`, whose values
  // are not read.
  virtual std::unique_ptr<Push> StartPush(const Ticket& ticket,
                                          const Parameters& at) = 0;
  // Takes a new sequence, and a ticket for it: for jobs whose examples are by
  // ticket. An asynchronous worker may hold pipeline_depth + 1, a synchronous
  // one as many as it has seats. Each is to be pushed and contributed, be
  // it with 0 examples: others wait for it.
  virtual std::unique_ptr<TicketRequest> StartTakeTicket() = 0;
  // The newest version once it is at least `min_version`; asynchronous: the
  // newest of each shard. With it come the rows that `into` wants. `into` must
  // not be touched until Await has returned or the pull is destroyed; its
  // vectors are resized where they have to be. Errors: FAILED_PRECONDITION when
  // the job is DONE at an earlier version, as by early stopping;
  // INVALID_ARGUMENT when `into` wants rows of no table, or ids that do not
  // rise.
  virtual std::unique_ptr<Pull> StartPull(GlobalStep min_version,
                                          Parameters* into) = 0;
  // Holds one version, the newest or a newer one, on every shard for reading;
  // asynchronous: the newest of each shard. For at most `hold`, 1 ms to 1 h. A
  // longer one keeps the memory of what has changed since for longer when the
  // caller dies.
  virtual absl::StatusOr<std::unique_ptr<Pin>> PinVersion(
      absl::Duration hold, absl::Time deadline) = 0;

  // Waits until the job is DONE: all is spent, or early stopping has ended it
  // before its last step, and, where there are checkpoints, it is saved.
  // ABORTED when it is STOPPED instead.
  virtual absl::Status AwaitDone(absl::Time deadline) = 0;
  virtual absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                        absl::Time deadline) = 0;
  // For an evaluator, at any time: waits for the next checkpoint that it is to
  // evaluate. That is kept on disk until it is reported, or another is asked
  // for. Nothing: the job is DONE, and there is none left.
  // Errors: those of Coordinator.NextEvaluation; ABORTED when the job has
  // failed or was stopped.
  virtual absl::StatusOr<std::optional<proto::CheckpointName>> NextEvaluation(
      absl::Time deadline) = 0;
  // The result of a checkpoint, at any time, whatever the job has gone back to
  // meanwhile.
  // Errors: those of Coordinator.ReportEvaluation.
  virtual absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                        const proto::CheckpointName& checkpoint,
                                        absl::Time deadline) = 0;
  // At any time.
  virtual absl::StatusOr<proto::GetStatusResponse> GetStatus(
      absl::Time deadline) = 0;
  // The job file that was declared, also where nothing is restored yet;
  // nullopt: there is none. At any time.
  virtual absl::StatusOr<std::optional<proto::DeclaredJob>> GetDeclaredJob(
      absl::Time deadline) = 0;
  // What has happened to the job since event `after`, and its course. At any
  // time.
  virtual absl::StatusOr<proto::GetEventsResponse> GetEvents(
      uint64_t after, absl::Time deadline) = 0;
  virtual absl::StatusOr<proto::GetHistoryResponse> GetHistory(
      const proto::GetHistoryRequest& request, absl::Time deadline) = 0;
  // Begins a trace of the whole cluster, looks at it, or fetches it, at any
  // time: for operators. Errors: those of Coordinator.Trace.
  virtual absl::StatusOr<proto::TraceResponse> Trace(
      const proto::TraceRequest& request, absl::Time deadline) = 0;
  // Has a checkpoint taken, at any time, and waits until it is on disk. Returns
  // its step.
  // Errors: those of Coordinator.Checkpoint; UNAVAILABLE, with the reason, when
  // it could not be written.
  virtual absl::StatusOr<GlobalStep> SaveCheckpoint(absl::Time deadline) = 0;
  // Asks the job to stop so that it can go on later (Coordinator.Stop), at any
  // time, and waits a while for that: the state in the answer says whether it
  // has ended. Asked again, with the same request, it waits on.
  // Errors: those of Coordinator.Stop.
  virtual absl::StatusOr<proto::StopResponse> StopJob(
      proto::StopRequest request, absl::Time deadline) = 0;
  // Has the learning rates multiplied by a factor
  // (Coordinator.SetLearningRate), at any time, and waits until the change
  // cannot be lost. Errors: those of Coordinator.SetLearningRate.
  virtual absl::StatusOr<proto::SetLearningRateResponse> SetLearningRate(
      const proto::SetLearningRateRequest& request, absl::Time deadline) = 0;
  // Ends the session in order, at any time. `error` says why the job cannot go
  // on, and ends it; empty: the job is done, or the caller steps down, and
  // another may take its place. Nothing else may be called afterwards, but
  // Leave again when it did not succeed.
  virtual absl::Status Leave(const std::string& error, absl::Time deadline) = 0;

  // All calls that wait, and all to come, but Leave, fail with CANCELLED: so
  // that the threads that make them can be waited for.
  virtual void Cancel() = 0;

  // As last heard; a registered task hears of a change at once.
  virtual proto::JobState state() const = 0;
  // Verdicts of steps below it are final: a checkpoint of it is on disk. As
  // last heard, at the latest one lease renewal ago.
  virtual GlobalStep durable_step() const = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_CLUSTER_H_
