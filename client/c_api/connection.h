// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_CONNECTION_H_
#define HOLDFAST_CLIENT_C_API_CONNECTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/background_calls.h"
#include "client/c_api/error.h"
#include "client/c_api/holdfast.h"
#include "client/c_api/options.h"
#include "client/c_api/own_declaration.h"
#include "client/c_api/variable_facts.h"
#include "client/cluster.h"
#include "client/phase_meter.h"
#include "client/row_request.h"
#include "client/training_loop.h"
#include "common/base/clock.h"
#include "common/trace/trace.h"
#include "common/trace/trace_parts.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast::c_api {

class Loop;
class Values;

// The object behind a cluster's handle: makes the calls to a Cluster that may
// take long in the background, and keeps their results.
//
// Repeating a call continues to wait for the operation already begun.
// Thread-safe.
class Connection {
 public:
  explicit Connection(Place place);
  // Calls Close.
  ~Connection();

  // Starts a trace, if one is requested. Must be called before Start.
  // Errors: INVALID_ARGUMENT if its file cannot be created.
  absl::Status StartTrace();
  // Begins to connect.
  void Start();

  Error AwaitConnected(absl::Time until);
  const Place& place() const { return place_; }
  // Null if nothing is traced.
  Tracer* tracer() const {
    return trace_ == nullptr ? nullptr : trace_->tracer();
  }
  bool is_client() const;
  // Whether this is a worker or the chief.
  bool trains() const;
  bool is_chief() const { return trains() && place_.replica == 0; }
  Error Declare(const std::string& text,
                absl::Span<const float* const> first_values, absl::Time until);
  Error AwaitVariables(absl::Time until);
  // Errors: REFUSED, in the coordinator's words; INVALID before AwaitVariables.
  Error Agree(const AgreedFacts& facts, absl::Time until);
  Error GetStatus(absl::Time until, std::string* json);
  Error SaveCheckpoint(absl::Time until, uint64_t* step);
  // `checkpoint`: the checkpoint that was evaluated, if any.
  Error ReportEvaluation(const proto::EvaluationResult& result,
                         const std::optional<proto::CheckpointName>& checkpoint,
                         absl::Time until);
  // Sets `*checkpoint` to nullopt if no checkpoint is left.
  Error NextEvaluation(absl::Time until,
                       std::optional<proto::CheckpointName>* checkpoint);
  // Asks for the end of the job, and waits for it.
  Error Finish(absl::Time until);
  Error Leave(const std::string& reason, absl::Time until);
  // See Cluster::LeaveEarly.
  Error StepDown(bool program_ended, absl::Time until);

  // Ends all threads and connections, and thereby all loops and pulls.
  void Close();

  // Set once AwaitVariables has succeeded; null before.
  const std::vector<VariableFacts>* variables() const;
  std::shared_ptr<const Declared> declared() const;

  // The exit code of a worker that requests the final values of a job that is
  // done, and cannot read them.
  int32_t ExitCodeWithoutValues() const;
  // Reads the last checkpoint of the job, which must be DONE, from the
  // directory that the environment variable HOLDFAST_CHECKPOINT_DIR names, or
  // where the ps say that it is. Blocks. Errors: NOT_FOUND, saying what to do,
  // if it is in neither place; those of its files; FAILED_PRECONDITION if it is
  // the checkpoint of another job.
  absl::StatusOr<std::shared_ptr<const Values>> ReadLastCheckpoint() const;

  // Starts a loop on `self`. `memory`: see TrainingLoop::Options.
  // Errors: INVALID before AwaitVariables, while another loop exists, or for
  // memory that does not have its variable's size.
  static Error StartLoop(const std::shared_ptr<Connection>& self, bool strict,
                         std::vector<absl::Span<float>> memory,
                         std::shared_ptr<Loop>* loop);
  // Makes the worker's reports include the share of its training time that it
  // waits for input.
  void TellsOfInput() { tells_of_input_ = true; }
  // Reads all values, of at least step `min_step`, and the rows `uses`, in the
  // background. `rows` becomes the request for these rows.
  // Errors: INVALID, naming the table.
  Error StartPull(uint64_t min_step, absl::Span<const RowUse> uses,
                  client::RowRequest* rows, std::shared_ptr<Parameters> into,
                  std::shared_ptr<BackgroundCalls::Call>* call);

  // OfCall converts the error of a call that has ended. NotYet returns the
  // error of a call that has not ended, which says what the call waits for.
  Error OfCall(const absl::Status& status) const;
  Error NotYet() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls `done` repeatedly, with deadlines not too far ahead, until it returns
  // true, and then returns true. Returns false at `until`, or once `given_up`
  // is set.
  static bool Wait(absl::Time until, const std::atomic<bool>& given_up,
                   absl::FunctionRef<bool(absl::Time)> done);

 private:
  // A call in the background, and the object to which it writes its result.
  template <typename Result>
  struct Pending {
    std::shared_ptr<BackgroundCalls::Call> call;
    std::shared_ptr<Result> result;
  };
  struct Nothing {};

  // Starts `function` in the background, unless the call of `*pending` is in
  // progress, and waits for it. Returns the error of `function`, or TIMED_OUT.
  template <typename Result>
  Error Await(Pending<Result>* pending, absl::Time until,
              std::function<absl::Status(Cluster*, Result*)> function,
              Result* result) ABSL_LOCKS_EXCLUDED(mutex_);
  Error AwaitCall(BackgroundCalls::Call* call, absl::Time until);
  // `leave`: ends the session.
  Error LeaveBy(std::function<absl::Status(Cluster*)> leave, absl::Time until);

  // INVALID before the cluster is connected, and after leaving it.
  Error CheckConnected() const;
  // Returns the cluster; null before it is connected and after it is closed.
  std::shared_ptr<Cluster> cluster() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts a call in the background. Returns null once the cluster is closed.
  std::shared_ptr<BackgroundCalls::Call> Begin(
      std::function<absl::Status()> function)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The following functions run in the background.
  absl::Status Connect();
  absl::Status DeclareTo(Cluster* cluster) const;
  absl::Status AwaitVariablesOf(Cluster* cluster) const;
  absl::Status Enter(Cluster* cluster);
  // [J4] Declares the job as it stands, with `facts`.
  absl::Status AgreeWith(Cluster* cluster, const AgreedFacts& facts) const;
  absl::Status Pull(Cluster* cluster, GlobalStep min_step,
                    Parameters* into) const;
  absl::Status FinishJob(Cluster* cluster);

  // Each returns the deadline of a call that begins now and waits for the job's
  // start, for a step, or for an answer.
  absl::Time StartDeadline() const;
  absl::Time StepDeadline() const;
  absl::Time AnswerDeadline() const;

  const Place place_;
  const SteadyClock clock_;
  // The trace of this process, in which the members below record.
  std::unique_ptr<TraceFile> trace_;
  // Records this process while a trace of the whole cluster is being taken.
  Tracer cluster_tracer_{
      {.max_spans = kMaxClusterTraceSpans, .on_demand = true}};
  PhaseMeter meter_{&clock_, &cluster_tracer_};
  // Whether the caller's program reports when it waits for input.
  std::atomic<bool> tells_of_input_{false};
  std::atomic<bool> closing_{false};

  mutable absl::Mutex mutex_;
  // What is waited for, as last reported.
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<BackgroundCalls::Call> connecting_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Cluster> cluster_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> left_{false};

  OwnDeclaration own_;
  Pending<Nothing> declaring_ ABSL_GUARDED_BY(mutex_);
  Pending<Nothing> entering_ ABSL_GUARDED_BY(mutex_);
  Pending<Nothing> agreeing_ ABSL_GUARDED_BY(mutex_);
  // Set once, before has_variables_.
  std::shared_ptr<const Declared> declared_;
  bool finished_before_ = false;
  // If finished_before_: the last checkpoint, or why it cannot be read.
  absl::StatusOr<std::shared_ptr<const Values>> last_checkpoint_ = nullptr;
  std::atomic<bool> has_variables_{false};
  // Whether the job was asked to end, and will.
  std::atomic<bool> finishing_{false};

  Pending<std::string> status_ ABSL_GUARDED_BY(mutex_);
  Pending<uint64_t> saving_ ABSL_GUARDED_BY(mutex_);
  Pending<Nothing> reporting_ ABSL_GUARDED_BY(mutex_);
  Pending<std::optional<proto::CheckpointName>> next_evaluation_
      ABSL_GUARDED_BY(mutex_);
  Pending<Nothing> finishing_call_ ABSL_GUARDED_BY(mutex_);
  Pending<Nothing> leaving_ ABSL_GUARDED_BY(mutex_);

  // The loop, of which there is at most one. Loop::Drop is called before the
  // cluster is destroyed.
  std::weak_ptr<Loop> loop_ ABSL_GUARDED_BY(mutex_);

  // Null once the cluster is closed.
  std::unique_ptr<BackgroundCalls> calls_ ABSL_GUARDED_BY(mutex_) =
      std::make_unique<BackgroundCalls>();
};

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_CONNECTION_H_
