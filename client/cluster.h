// SPDX-License-Identifier: Apache-2.0
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
  // Sequence of the push that this ticket is for.
  PushSequence sequence;
  // Determines the examples: batch `index` of the training stream.
  uint64_t index = 0;
  // The scalars with which the push is applied, such as the learning rate: one
  // element per optimizer of the declaration. Asynchronous jobs only.
  std::vector<proto::StepScalars> scalars;
  // Proves to the shards that `scalars` belong to this ticket. Asynchronous
  // jobs only.
  uint64_t receipt = 0;
  // See Parameters::loss_scale. Asynchronous jobs only.
  float loss_scale = 1;
  // In synchronous jobs, the open step; in asynchronous jobs, the number of
  // tickets that were spent when this one was issued.
  GlobalStep global_step;
};

// What a push contributes to the model.
struct Contribution {
  // The push's place in the step; seat mod M must be the caller's replica
  // index. Synchronous jobs only.
  uint32_t seat = 0;
  // Number of examples that the gradient was computed on. With 0 the push
  // changes nothing, whatever was handed in, but it still takes its seat or
  // spends its ticket.
  uint64_t examples = 0;
  // The shards multiply the gradient by this.
  float clip_factor = 1;
  // Mean loss over the examples, for display only. Absent: unknown.
  std::optional<double> loss;
  // Whether there are no examples because the loss or the gradient was not
  // finite. Such pushes are counted, and lower the loss scale if the job has
  // one.
  bool not_finite = false;
};

// One task's connection to a cluster, through which workers, tools and tests
// declare, push, pull, pin and query.
//
// A worker in outline:
//
//   auto cluster = Cluster::Connect(options);
//   (*cluster)->Declare(declaration, deadline);
//   (*cluster)->AwaitVariables(deadline);
//   Parameters now, next;
//   (*cluster)->StartPull(GlobalStep(0), &now)->Await(deadline);
//   for (;;) {
//     auto push = (*cluster)->StartPush(now.version);
//     push->Add(variable, gradient);  // each variable, in any order
//     push->AddRows(table, ids, gradients);  // each table likewise
//     next.WantRows(table, ids_of_next_batch);
//     push->Contribute({seat, examples, clip_factor, loss}, &next);
//     auto outcome = push->Await(deadline);  // the verdict; `next` is filled
//     std::swap(now, next);
//   }
//
// In a synchronous job the worker may begin to compute on version t + 1 while
// its values arrive: Push::AwaitVerdict and Pull::AwaitVariable.
//
// In an asynchronous job the worker takes a ticket for each push, and requests
// the next one in the meantime:
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
// In a synchronous job whose examples are assigned by ticket, the worker
// requests the next ticket only after it has contributed the previous push: the
// last step stays open as long as a worker holds a ticket for later use.
//
// An operation is in progress from its Start call until its Await returns:
// gradients are sent while others are still being computed, and a worker may
// have several pushes, pulls and requests in progress at a time.
//
// Deadlines are times of the steady clock (common/base/clock.h), such as
// SteadyNow() + absl::Seconds(30), not wall-clock times.
//
// Failed RPCs are retried, idempotently, until the call's deadline, even if a
// ps is away for long; a push counts once however often it is sent. When a
// shard has lost its state, the job rolls back to an earlier one, and
// operations in progress fail with ABORTED: see rolled_back().
//
// Errors name the task that was called or waited for. Errors common to all
// calls:
//   ABORTED              the job has failed or was stopped (see state()); the
//                        message is the reason. Or this worker was fenced. Or,
//                        if rolled_back(), the job went back to an earlier
//                        state.
//   UNAVAILABLE          a ps could not be reached before the deadline, or the
//                        coordinator was silent for recovery_timeout.
//   DEADLINE_EXCEEDED    timed out; the message says what was waited for.
//   FAILED_PRECONDITION  the call requires AwaitVariables first, or a
//                        registered task; or it waits for something that will
//                        never happen, because the job is DONE.
//   INTERNAL             a ps sent an impossible answer; the message names it.
// It is not an error if a ps has no room for a push: the push is sent again
// after a pause, until the deadline, whose error then gives this reason.
//
// An Await that returns an error ends its handle: the operation is abandoned,
// the memory belongs to the caller again, and every further Await returns the
// same error. Destroying a handle, which is allowed at any time, has the same
// effect.
//
// Thread-safe. Handles (Push and the like) are thread-compatible, may be used
// from different threads, and must not outlive the Cluster.
class Cluster {
 public:
  struct Options {
    ClusterSpec cluster;
    // The caller's task. A worker or chief registers and holds a lease; the
    // default, a client, only reads.
    TaskId task = {kClientJob, 0};
    // Lets a worker or evaluator inspect the job before it registers. It then
    // has no lease, and may inspect the job even while another process is
    // registered as this task.
    bool only_reads = false;
    // The credentials of `task`, or of an operator if the caller only reads.
    // Default: no encryption.
    Credentials credentials;
    // Digests of the job file and the data; workers whose digests differ are
    // refused.
    std::string job_digest;
    std::string data_digest;
    // What a worker is about to declare; optional. If the worker is refused
    // because of its job file, the error then names the first field that
    // differs from the job's declaration.
    std::optional<proto::Declaration> declaration;
    // How long to wait until every ps answers.
    absl::Duration connect_timeout = kDefaultTimeout;
    // Makes a client that only reads give up as soon as it is certain why a ps
    // cannot be reached, for example because nothing listens at its address.
    // For tools; tasks start in any order, and must wait.
    bool fail_fast = false;
    // How long the coordinator may be silent before all calls fail. A longer
    // timeout gives the coordinator more time to come back.
    absl::Duration recovery_timeout = kDefaultTimeout;
    // The maximum number of tensor bytes in one call.
    int64_t part_bytes = kPartBytes;
    // Whether tensors pass through shared memory if a ps is on this host
    // (docs/protocol/same_host.md). This costs memory for the gradients of all
    // pushes that are in progress, or kept by a ps, at the same time.
    bool same_host = true;
    // Share memory only with a ps whose socket is in this directory, such as a
    // volume shared by containers. Empty: any directory.
    std::string same_host_dir;
    // Pins the memory of a ps on this host from which values are read in place,
    // so that a device can copy from it. For values that arrive otherwise, see
    // Parameters::SetHostMemory. Must outlive the cluster and all Parameters.
    // Null: nothing is pinned.
    HostMemory* host_memory = nullptr;
    // Called with each renewal of the lease, by a thread of the cluster:
    // returns what this worker reports about itself (for example
    // PhaseMeter::Report). Must not block. May be empty.
    std::function<TaskReport()> report;
    // Called at least every few seconds while connecting: returns whether to
    // give up, with CANCELLED. May be empty.
    std::function<bool()> give_up;
    // Called by a waiting thread when a call has waited for another task for
    // two seconds, and every ten seconds after that, with what it waits for and
    // why. Several threads may wait at a time. May be empty.
    std::function<void(const std::string& what)> on_waiting;
    // Records each attempt of an RPC (docs/operating/tracing.md), except lease
    // renewals. Must outlive the cluster. Null: nothing is recorded.
    Tracer* tracer = nullptr;
    // Records the same attempts for traces of the whole cluster, while one is
    // being taken. Must outlive the cluster. Null: such traces do not include
    // this task.
    Tracer* cluster_tracer = nullptr;
  };

  // What became of a push.
  struct Outcome {
    proto::Verdict verdict;
    // Synchronous jobs: the step that was open when the verdict was given.
    GlobalStep global_step;
    // Asynchronous jobs: the number of pushes applied between the version that
    // the gradient was computed on and this push; the maximum over the shards.
    uint64_t staleness = 0;
  };

  // An operation in progress.
  class Handle {
   public:
    virtual ~Handle() = default;
    // Whether Await would return without waiting, because its result has
    // arrived or never will.
    virtual bool done() const = 0;
  };

  class Pull;

  // A gradient on its way into the model. The push is done when its verdict has
  // arrived, with the values that were requested along with it.
  class Push : public Handle {
   public:
    virtual PushSequence sequence() const = 0;
    // Returns memory for the whole gradient of one variable, row-major, which a
    // ps of this host reads in place: a gradient that is written there and then
    // handed in by Add is not copied. Its initial content is unspecified. The
    // caller may write to it until Add, and read it until AwaitHeld or Await
    // has returned, or the push is destroyed or contributed with 0 examples.
    // Returns an empty span if there is no such memory. Add accepts gradients
    // in any memory.
    virtual absl::Span<float> Memory(size_t /*variable*/) { return {}; }
    // Hands in the gradient of one variable (its index as declared), whole and
    // row-major. Parts of the push that are complete with this gradient are
    // sent at once, except the last one for each ps, and unless the whole push
    // fits in one message together with its follow-up. The memory must stay
    // unchanged until AwaitHeld or Await has returned, or the push is started
    // again or destroyed. A variable without elements need not be handed in.
    // Errors: INVALID_ARGUMENT for a wrong index or length, a variable that is
    // not trainable, or one handed in before; RESOURCE_EXHAUSTED or UNAVAILABLE
    // if no memory can be shared with a ps of this host; the push's own error
    // if it has already failed.
    virtual absl::Status Add(size_t variable,
                             absl::Span<const float> gradient) = 0;
    // Hands in the gradients of all rows of one embedding table in the push:
    // `ids` are strictly increasing, and the gradients are in the same order
    // (client/row_batch.h makes both). The memory of both must stay unchanged,
    // as for Add. A table that has not been handed in before AwaitHeld or
    // Contribute has no rows in the push. The first part states the number of
    // parts, so nothing is sent before AwaitHeld or Contribute unless every
    // table has been handed in. To have the push sent early, hand in tables
    // without rows, too.
    // Errors: INVALID_ARGUMENT, naming the table, for a wrong index, ids that
    // are not strictly increasing, gradients of the wrong length, more than
    // max_rows_per_push rows, a table handed in before, or a call after
    // AwaitHeld or Contribute; the push's own error if it has already failed.
    virtual absl::Status AddRows(size_t table, absl::Span<const uint64_t> ids,
                                 absl::Span<const float> gradients) = 0;

    // Waits until AwaitHeld would return at once, or until `until`; returns
    // whether AwaitHeld would return at once. See WaitUntilDone.
    virtual bool WaitUntilHeld(absl::Time until) = 0;
    // Waits until every shard has acknowledged all of the gradient, whose
    // memory then belongs to the caller again. For callers that need the memory
    // before the verdict, such as a worker that computes several pushes of a
    // step in the same memory. Optional; only before Contribute. Returns OK
    // even if the push is already decided: Contribute and Await return the
    // verdict.
    // Errors: FAILED_PRECONDITION if a trainable variable was not handed in, or
    // after Contribute; those of Shard.Push except RESOURCE_EXHAUSTED.
    virtual absl::Status AwaitHeld(absl::Time deadline) = 0;

    // Makes the push count as soon as every shard has acknowledged every part,
    // without a waiting thread: in a synchronous job the push is offered to its
    // step, in an asynchronous one it is applied on every shard. Then pulls
    // into `next` (null: does not pull) the version after the step's or a newer
    // one, in asynchronous jobs the newest, with the rows that `next` wants.
    // All of this takes one round trip if there is one ps and the gradient fits
    // in one message, as must the values if rows are involved.
    //
    // Call it once, after all gradients were handed in; or, with 0 examples, at
    // any time: then nothing more of the gradient is sent, and its memory
    // belongs to the caller. `next` must not be touched until Await has
    // returned or the push is destroyed.
    // Errors, the first two of which leave the push unchanged:
    // FAILED_PRECONDITION if a trainable variable was not handed in, or if
    // called before; INVALID_ARGUMENT for an asynchronous push whose loss is
    // not finite, or if `next` wants rows of a table that does not exist, or
    // ids that are not strictly increasing; the push's own error if it has
    // already failed.
    virtual absl::Status Contribute(const Contribution& contribution,
                                    Parameters* next = nullptr) = 0;

    // Gives up what was handed in, and starts the push anew, for the same step
    // or ticket and under the same sequence. Other gradients, or the same ones
    // after a change, may be handed in to the push that this returns. Nothing
    // that was handed in before counts, whatever was sent of it. Its memory
    // belongs to the caller again when this returns, and the handle of this
    // push may then only be destroyed.
    // Must not be called after WaitUntilHeld, AwaitHeld or Contribute: the push
    // that it returns then fails with FAILED_PRECONDITION.
    virtual std::unique_ptr<Push> StartAgain() = 0;

    // Waits until done(), or until `until`, and returns done(). A timeout ends
    // nothing: another call resumes the wait. For callers that cannot block for
    // long.
    virtual bool WaitUntilDone(absl::Time until) = 0;
    // Waits for the verdict and, if Contribute was called with `next`, for its
    // values, which do not arrive if the verdict is FENCED. An asynchronous
    // push that is ACCEPTED is reported to the coordinator automatically, even
    // if no thread waits.
    // An asynchronous worker's pushes are applied in order, so later pushes
    // wait for one whose handle is destroyed before its Await returns. If the
    // handle was destroyed before Contribute, the push may be started again,
    // with the same gradient or with 0 examples. If it was destroyed after
    // Contribute, the push may have been applied on some shards, and the worker
    // has to leave.
    // Errors: FAILED_PRECONDITION before Contribute; those of Shard.Push except
    // RESOURCE_EXHAUSTED, of Coordinator.Contribute or Shard.Apply, and of
    // Pull::Await.
    virtual absl::StatusOr<Outcome> Await(absl::Time deadline) = 0;
    // Does the same, except that it does not wait for the values. Sets `*rest`
    // to the pull that brings them, after which the push no longer refers to
    // `next` and may be destroyed; to null if they are there, none were
    // requested, or none will arrive.
    // Errors: those of Await, except those of Pull::Await; `*rest` is then
    // null.
    virtual absl::StatusOr<Outcome> AwaitVerdict(
        absl::Time deadline, std::unique_ptr<Pull>* rest) = 0;
  };

  // A request for a ticket. If it is destroyed before Await has returned a
  // ticket, the ticket goes to the next request.
  class TicketRequest : public Handle {
   public:
    // See Push::WaitUntilDone.
    virtual bool WaitUntilDone(absl::Time until) = 0;
    // Returns nullopt if the job is DONE and there are no more tickets.
    // Errors: those of Coordinator.TakeTicket; ABORTED if this worker has been
    // fenced.
    virtual absl::StatusOr<std::optional<Ticket>> Await(
        absl::Time deadline) = 0;
  };

  // A pull that waits for its version.
  class Pull : public Handle {
   public:
    // See Push::WaitUntilDone.
    virtual bool WaitUntilDone(absl::Time until) = 0;
    // On success all of `into` has the same version, unless the job is
    // asynchronous. On an error its content is unspecified.
    virtual absl::Status Await(absl::Time deadline) = 0;

    // ---- Single variables, in synchronous jobs ----

    // A variable whose values have arrived.
    struct Arrived {
      // The version of the values, and its loss scale.
      GlobalStep version;
      float loss_scale = 1;
    };
    // Whether AwaitVariable would return without waiting.
    virtual bool HasVariable(size_t variable) const = 0;
    // Waits until all values of one variable (its index as declared) are in
    // `into`, where they may then be read (Parameters::Of) while others are
    // still arriving. Each ps sends its share of the variables in the order of
    // their declaration. All variables for which this returns a version have
    // the same one.
    //
    // Returns nullopt if the pull cannot bring the rest of that version,
    // usually because a newer one was committed meanwhile and a shard has sent
    // it. What was computed from the values handed out must then be dropped.
    // They stay unchanged until Resume or Await, which pulls all values again.
    // When all variables were handed out, the pull is complete, unless `into`
    // wants rows: Await then returns OK without waiting, and that version.
    //
    // May be called by several threads.
    // Errors: those of Await; FAILED_PRECONDITION in asynchronous jobs, and if
    // `into` does not want the variables; INVALID_ARGUMENT for a wrong index.
    virtual absl::StatusOr<std::optional<Arrived>> AwaitVariable(
        size_t variable, absl::Time deadline) = 0;
    // Tells the pull that the values handed out by AwaitVariable are no longer
    // read, so that it may overwrite them with those of a newer version. Await
    // and WaitUntilDone imply this.
    virtual void Resume() = 0;
  };

  // A version that every shard holds so that it can be read; in asynchronous
  // jobs each shard holds a version of its own. Destroying the Pin releases it.
  class Pin {
   public:
    virtual ~Pin() = default;
    // The version that is held. In asynchronous jobs, the least of the shards'
    // versions, as for Parameters::version.
    virtual GlobalStep version() const = 0;
    // Reads the pinned version, as Cluster::StartPull reads the newest. Errors:
    // NOT_FOUND if the pin has expired.
    virtual std::unique_ptr<Pull> StartRead(Parameters* into) = 0;
  };

  // Connects to every ps of the cluster, each of which may start later, and
  // registers unless options.task is a client.
  // Errors: those of Coordinator.Register (proto/coordinator.proto);
  // UNAVAILABLE, with the name of a ps that did not answer in time and the
  // cause; INVALID_ARGUMENT if something other than that ps is at its address
  // and retrying cannot help: another ps, a ps of another training, or another
  // server.
  static absl::StatusOr<std::unique_ptr<Cluster>> Connect(Options options);

  // If Leave was not called, leaves with an error, so that others need not wait
  // until the lease expires. An evaluator leaves without an error, because
  // nothing waits for it.
  virtual ~Cluster() = default;

  // Errors: INVALID_ARGUMENT, ALREADY_EXISTS: see Coordinator.Declare.
  virtual absl::Status Declare(const proto::Declaration& declaration,
                               absl::Time deadline) = 0;
  // Waits until the variables exist on every shard. Unless stated otherwise,
  // all functions below require a successful call of this one, and belong to
  // the job's generation in which it was made. Called again after a roll-back,
  // switches to the newest generation, where sequences start over; otherwise a
  // further call does nothing.
  absl::Status AwaitVariables(absl::Time deadline) {
    return AwaitVariables(deadline, nullptr);
  }
  // Does the same, and also gives the cluster the first values of all variables
  // that are declared as `given`, if the cluster wants them because no
  // checkpoint holds them. `first_values` is called by this thread; it may be
  // empty if other workers give the values. Several workers may give them,
  // since all have the same.
  // Errors: INVALID_ARGUMENT, naming the variable, if its values are not those
  // that were declared; the errors of `first_values`.
  virtual absl::Status AwaitVariables(absl::Time deadline,
                                      const FirstValues& first_values) = 0;
  // True if the job has begun a later generation than the one that
  // AwaitVariables was called in: a shard had lost its state, and the job
  // continues from an earlier one (docs/protocol/recovery.md, G6). Operations
  // in progress fail with ABORTED. Destroy all handles, then call
  // AwaitVariables again, and continue with a pull. A client that only reads
  // learns of the roll-back when a call fails with ABORTED.
  virtual bool rolled_back() const = 0;
  // The job's declaration, with defaults filled in, such as the numbers of
  // gradients and workers per step; the same in all generations.
  virtual const proto::Declaration& declaration() const = 0;

  // Starts a push without a ticket, for synchronous jobs whose examples are
  // assigned by step. Takes a new sequence. `step`: the version of the values
  // on which the gradient is computed.
  virtual std::unique_ptr<Push> StartPush(GlobalStep step) = 0;
  // Starts the push of a ticket, under the ticket's sequence. `at`: the
  // parameters on which the gradient is computed. Their versions are read, but
  // not their values.
  virtual std::unique_ptr<Push> StartPush(const Ticket& ticket,
                                          const Parameters& at) = 0;
  // Takes a new sequence and a ticket for it, for jobs whose examples are
  // assigned by ticket. An asynchronous worker may hold pipeline_depth + 1
  // tickets, a synchronous one as many as it has seats. Each ticket must be
  // pushed and contributed, if only with 0 examples, because others wait for
  // it.
  virtual std::unique_ptr<TicketRequest> StartTakeTicket() = 0;
  // Pulls the newest version once it is at least `min_version` (asynchronous:
  // the newest of each shard), with the rows that `into` wants. `into` must not
  // be touched until Await has returned or the pull is destroyed; its vectors
  // are resized as needed. Errors: FAILED_PRECONDITION if the job is DONE at an
  // earlier version, for example after early stopping; INVALID_ARGUMENT if
  // `into` wants rows of a table that does not exist, or ids that are not
  // strictly increasing.
  virtual std::unique_ptr<Pull> StartPull(GlobalStep min_version,
                                          Parameters* into) = 0;
  // Pins one version, at least as new as the newest at the time of the call, on
  // every shard for reading; asynchronous: the newest of each shard. The pin
  // lasts for at most `hold`, 1 ms to 1 h. If the caller dies, a longer `hold`
  // makes the shards keep old copies of changed values for longer.
  virtual absl::StatusOr<std::unique_ptr<Pin>> PinVersion(
      absl::Duration hold, absl::Time deadline) = 0;

  // Waits until the job is DONE: all steps or tickets are spent, or early
  // stopping has ended it, and the final state is saved if there are
  // checkpoints. Errors: ABORTED if the job is STOPPED instead.
  virtual absl::Status AwaitDone(absl::Time deadline) = 0;
  virtual absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                        absl::Time deadline) = 0;
  // For an evaluator, at any time: waits for the next checkpoint that it should
  // evaluate. The checkpoint stays on disk until its evaluation is reported or
  // another checkpoint is requested. Returns nullopt if the job is DONE and no
  // checkpoint is left.
  // Errors: those of Coordinator.NextEvaluation; ABORTED if the job has failed
  // or was stopped.
  virtual absl::StatusOr<std::optional<proto::CheckpointName>> NextEvaluation(
      absl::Time deadline) = 0;
  // Reports the evaluation of a checkpoint, at any time, even if the job has
  // rolled back since.
  // Errors: those of Coordinator.ReportEvaluation.
  virtual absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                        const proto::CheckpointName& checkpoint,
                                        absl::Time deadline) = 0;
  // May be called at any time.
  virtual absl::StatusOr<proto::GetStatusResponse> GetStatus(
      absl::Time deadline) = 0;
  // Returns the job file that was declared, even before the job's state has
  // been restored; nullopt if none was declared. May be called at any time.
  virtual absl::StatusOr<std::optional<proto::DeclaredJob>> GetDeclaredJob(
      absl::Time deadline) = 0;
  // GetEvents returns the job's events whose numbers are greater than `after`;
  // GetHistory returns the history of the job's figures, such as its loss. Both
  // may be called at any time.
  virtual absl::StatusOr<proto::GetEventsResponse> GetEvents(
      uint64_t after, absl::Time deadline) = 0;
  virtual absl::StatusOr<proto::GetHistoryResponse> GetHistory(
      const proto::GetHistoryRequest& request, absl::Time deadline) = 0;
  // Begins a trace of the whole cluster, queries its progress, or fetches it,
  // at any time; for operators. Errors: those of Coordinator.Trace.
  virtual absl::StatusOr<proto::TraceResponse> Trace(
      const proto::TraceRequest& request, absl::Time deadline) = 0;
  // Takes a checkpoint, at any time, and waits until it is on disk. Returns its
  // step.
  // Errors: those of Coordinator.Checkpoint; UNAVAILABLE, with the reason, if
  // it could not be written.
  virtual absl::StatusOr<GlobalStep> SaveCheckpoint(absl::Time deadline) = 0;
  // Asks the job to stop so that it can be resumed later (Coordinator.Stop), at
  // any time, and waits a while for it to stop: the state in the answer says
  // whether it has. Called again with the same request, it continues to wait.
  // Errors: those of Coordinator.Stop.
  virtual absl::StatusOr<proto::StopResponse> StopJob(
      proto::StopRequest request, absl::Time deadline) = 0;
  // Asks for the end of the job for all tasks, as after its last step, at the
  // first step at which that is possible (Coordinator.Stop with `finish`).
  // Returns once the decision cannot be lost. Does not wait for the end: each
  // worker still has to answer the tickets that it holds, and AwaitDone waits
  // for the others. For workers, at any time; may be repeated, and does nothing
  // once the job is done.
  // Errors: those of Coordinator.Stop.
  virtual absl::Status Finish(absl::Time deadline) = 0;
  // Multiplies the learning rates by a factor (Coordinator.SetLearningRate), at
  // any time, and waits until the change cannot be lost. Errors: those of
  // Coordinator.SetLearningRate.
  virtual absl::StatusOr<proto::SetLearningRateResponse> SetLearningRate(
      const proto::SetLearningRateRequest& request, absl::Time deadline) = 0;
  // Ends the session in an orderly way, at any time. A non-empty `error` says
  // why the job cannot continue, and ends the job. Empty: the job is done, or
  // the caller steps down and another process may take its place. Afterwards
  // only Leave may be called, and only if it did not succeed.
  virtual absl::Status Leave(const std::string& error, absl::Time deadline) = 0;
  // The same for a worker whose program ends, or goes on without the cluster,
  // of its own accord and without an error. If the job is not done, its events
  // say so, because the job may wait for the worker in vain.
  virtual absl::Status LeaveEarly(bool program_ended, absl::Time deadline) = 0;

  // Makes all waiting and future calls except Leave fail with CANCELLED, so
  // that the threads that make them can be joined.
  virtual void Cancel() = 0;

  // The job's state as last heard; a registered task hears of a change at once.
  virtual proto::JobState state() const = 0;
  // The step of the newest checkpoint that is known to be on disk, as heard
  // with the last lease renewal or later. The verdicts of earlier steps are
  // final.
  virtual GlobalStep durable_step() const = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_CLUSTER_H_
