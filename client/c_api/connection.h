#ifndef HOLDFAST_CLIENT_C_API_CONNECTION_H_
#define HOLDFAST_CLIENT_C_API_CONNECTION_H_

#include <array>
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
#include "client/cluster.h"
#include "client/phase_meter.h"
#include "client/training_loop.h"
#include "common/clock.h"
#include "common/trace.h"
#include "proto/cluster.pb.h"

namespace holdfast::c_api {

// A variable as the C API tells it: name and shape with the addresses that it
// promises.
struct VariableFacts {
  VariableFacts() = default;
  explicit VariableFacts(const proto::Variable& variable);
  // `data`: may be null.
  void CopyTo(const float* data, holdfast_variable* variable) const;

  std::string name;
  std::vector<int64_t> shape;
  size_t elements = 0;
  bool trainable = true;
  bool moving_average = false;
};
std::vector<VariableFacts> FactsOf(const proto::Declaration& declaration);

class Loop;

// What a cluster's handle stands for: the calls to a Cluster that may take
// long, each in the background, and what they have come to.
//
// What has been begun is waited for again by the same call. Thread-safe.
class Connection {
 public:
  explicit Connection(Place place);
  // Closes.
  ~Connection();

  // Where a trace is asked for; before Start.
  // Errors: INVALID_ARGUMENT when its file cannot be made.
  absl::Status StartTrace();
  // Begins to connect.
  void Start();

  Error AwaitConnected(absl::Time until);
  const Place& place() const { return place_; }
  // Null where nothing is traced.
  Tracer* tracer() const {
    return trace_ == nullptr ? nullptr : trace_->tracer();
  }
  bool is_client() const;
  bool is_chief() const { return !is_client() && place_.replica == 0; }
  Error Declare(const std::string& text,
                absl::Span<const float* const> first_values, absl::Time until);
  Error AwaitVariables(absl::Time until);
  Error GetStatus(absl::Time until, std::string* json);
  Error SaveCheckpoint(absl::Time until, uint64_t* step);
  Error ReportEvaluation(const proto::EvaluationResult& result,
                         absl::Time until);
  Error Leave(const std::string& reason, absl::Time until);

  // Ends all threads and connections, and with them all loops and pulls.
  void Close();

  // Set once AwaitVariables has succeeded; null before.
  const std::vector<VariableFacts>* variables() const;
  const proto::Declaration* declaration() const;

  // Begins a loop on `self`. `memory`: as TrainingLoop::Options has it.
  // Errors: INVALID before AwaitVariables, or while there is one, and for
  // memory of another size than its variable.
  static Error StartLoop(const std::shared_ptr<Connection>& self, bool strict,
                         std::vector<absl::Span<float>> memory,
                         std::shared_ptr<Loop>* loop);
  // Reads all values, of at least this step, in the background.
  Error StartPull(uint64_t min_step, std::shared_ptr<Parameters> into,
                  std::shared_ptr<BackgroundCalls::Call>* call);

  // The error of a call; of one that is not over yet, with what it waits for.
  Error OfCall(const absl::Status& status) const;
  Error NotYet() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls `done` with times not too far ahead until it returns true, and
  // returns true; false after `until`, or once `given_up`.
  static bool Wait(absl::Time until, const std::atomic<bool>& given_up,
                   absl::FunctionRef<bool(absl::Time)> done);

 private:
  // A call, and where its result goes.
  template <typename Result>
  struct Pending {
    std::shared_ptr<BackgroundCalls::Call> call;
    std::shared_ptr<Result> result;
  };
  struct Nothing {};

  // Begins `function`, unless `*pending` is under way, and waits for it. What
  // it comes to, or TIMED_OUT.
  template <typename Result>
  Error Await(Pending<Result>* pending, absl::Time until,
              std::function<absl::Status(Cluster*, Result*)> function,
              Result* result) ABSL_LOCKS_EXCLUDED(mutex_);
  Error AwaitCall(BackgroundCalls::Call* call, absl::Time until);

  // INVALID before it is connected, and after it has left.
  Error CheckConnected() const;
  // Null before it is connected, and once it is closed.
  std::shared_ptr<Cluster> cluster() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Null once it is closed.
  std::shared_ptr<BackgroundCalls::Call> Begin(
      std::function<absl::Status()> function)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Takes a copy of the chief's, and their digests.
  absl::Status TakeFirstValues(absl::Span<const float* const> values,
                               proto::Declaration* declaration);

  // In the background.
  absl::Status Connect();
  absl::Status DeclareTo(Cluster* cluster) const;
  absl::Status AwaitVariablesOf(Cluster* cluster) const;
  absl::Status Enter(Cluster* cluster);
  absl::Status Pull(Cluster* cluster, GlobalStep min_step,
                    Parameters* into) const;
  // Whether what this worker has declared is what stands.
  absl::Status CheckDeclared(const proto::Declaration& stands) const;

  // For calls that wait for the start, for a step, for an answer.
  absl::Time StartDeadline() const;
  absl::Time StepDeadline() const;
  absl::Time AnswerDeadline() const;

  const Place place_;
  const SteadyClock clock_;
  // Of all that follows.
  std::unique_ptr<TraceFile> trace_;
  PhaseMeter meter_{&clock_};
  std::atomic<bool> closing_{false};

  mutable absl::Mutex mutex_;
  // What is waited for, as last told.
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<BackgroundCalls::Call> connecting_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Cluster> cluster_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> left_{false};

  // What this worker declares; set once.
  std::optional<std::string> text_ ABSL_GUARDED_BY(mutex_);
  proto::Declaration own_;
  // By variable; empty where there are none.
  std::vector<std::vector<float>> first_values_;
  Pending<Nothing> declaring_ ABSL_GUARDED_BY(mutex_);
  Pending<Nothing> entering_ ABSL_GUARDED_BY(mutex_);
  // Set once, before has_variables_.
  std::vector<VariableFacts> variables_;
  proto::Declaration declaration_;
  bool finished_before_ = false;
  std::atomic<bool> has_variables_{false};

  Pending<std::string> status_ ABSL_GUARDED_BY(mutex_);
  Pending<uint64_t> saving_ ABSL_GUARDED_BY(mutex_);
  Pending<Nothing> reporting_ ABSL_GUARDED_BY(mutex_);
  Pending<Nothing> leaving_ ABSL_GUARDED_BY(mutex_);

  // There is one at most; dropped before it goes.
  std::weak_ptr<Loop> loop_ ABSL_GUARDED_BY(mutex_);

  // Null once it is closed.
  std::unique_ptr<BackgroundCalls> calls_ ABSL_GUARDED_BY(mutex_) =
      std::make_unique<BackgroundCalls>();
};

// A loop's handle.
//
// Thread-safe.
class Loop {
 public:
  Loop(std::shared_ptr<Connection> connection,
       std::unique_ptr<TrainingLoop> loop);
  // Ends waits, and lets go of all that belongs to the cluster. To be called
  // before it is destroyed.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);

  Error Next(absl::Time until, holdfast_turn* turn);
  Error Values(absl::Span<const float*> values);
  Error Read(absl::Span<float* const> into, absl::Span<const size_t> elements);
  Error Add(size_t variable, absl::Span<const float> gradient);
  Error Contribute(const TrainingLoop::Gradient& gradient);
  Error Push(absl::Span<const float* const> gradients,
             absl::Span<const size_t> elements,
             const TrainingLoop::Gradient& gradient);
  Error Outcome(holdfast_outcome* outcome);

 private:
  Error CheckCount(size_t count) const;
  Error AddLocked(size_t variable, absl::Span<const float> gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The turn's computation is over, at which it was contributed to.
  void TraceGradient() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Connection> connection_;
  Tracer* const tracer_;
  std::atomic<bool> given_up_{false};
  absl::Mutex mutex_;
  // With a tracer: when the turn was handed out, or contributed to.
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  uint64_t batch_ ABSL_GUARDED_BY(mutex_) = 0;
  // Null once the cluster is closed.
  std::unique_ptr<TrainingLoop> loop_ ABSL_GUARDED_BY(mutex_);
  // Of its values; they outlive it.
  const std::shared_ptr<const void> memory_;
};

// The handle of all values of a model.
class Values {
 public:
  // Of a pull that is under way.
  Values(std::shared_ptr<Connection> connection,
         std::shared_ptr<Parameters> values,
         std::shared_ptr<BackgroundCalls::Call> call);
  // That are here.
  Values(proto::Declaration declaration, std::shared_ptr<Parameters> values);

  void GiveUp() { given_up_ = true; }

  Error Await(absl::Time until);
  // INVALID before Await has succeeded.
  Error Check() const;
  // Once it has.
  uint64_t step() const { return values_->version.value(); }
  size_t count() const { return facts_.size(); }
  void GetVariable(size_t index, holdfast_variable* variable) const;
  std::string Digest() const;

 private:
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<Parameters> values_;
  const std::shared_ptr<BackgroundCalls::Call> call_;
  std::atomic<bool> given_up_{false};
  std::atomic<bool> here_{false};
  const proto::Declaration declaration_;
  const std::vector<VariableFacts> facts_;
};

// Reads a checkpoint: that of this folder, or the newest durable one of this
// directory. Errors: those of its files.
absl::StatusOr<std::shared_ptr<Values>> LoadCheckpoint(const std::string& path);

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_CONNECTION_H_
