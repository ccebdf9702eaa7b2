// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/connection.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/c_api/loop.h"
#include "client/c_api/values.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/job/job_phase.h"
#include "common/process/exit_code.h"
#include "common/rpc/timeouts.h"
#include "glog/logging.h"

namespace holdfast::c_api {
namespace {

// How long a wait may last before checking whether it is still wanted.
constexpr absl::Duration kSlice = absl::Milliseconds(100);
constexpr absl::Duration kMargin = absl::Seconds(30);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(5);
// Generous, because the coordinator limits how long writing a checkpoint may
// take.
constexpr absl::Duration kSaveTimeout = absl::Hours(1);
constexpr absl::Duration kPinHold = absl::Minutes(10);
constexpr char kCheckpointDirVariable[] = "HOLDFAST_CHECKPOINT_DIR";

Error CheckMemory(const std::vector<VariableFacts>& variables,
                  absl::Span<const absl::Span<float>> memory) {
  if (memory.empty()) return Error();
  if (memory.size() != variables.size()) {
    return Invalid(absl::StrCat("there are ", variables.size(),
                                " variables, not ", memory.size()));
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    if (memory[i].data() == nullptr) continue;
    if (Error error = variables[i].CheckElements(memory[i].size());
        !error.ok()) {
      return error;
    }
  }
  return Error();
}

// Whether an error means that the job has ended in an orderly way.
bool IsEndOf(const Cluster& cluster, const absl::Status& error) {
  const proto::JobPhase phase = cluster.state().phase();
  return (absl::IsFailedPrecondition(error) && phase == proto::DONE) ||
         (absl::IsAborted(error) && phase == proto::STOPPED);
}

}  // namespace

Connection::Connection(Place place)
    : place_(std::move(place)),
      own_(place_.connect.task.ToString(), is_chief()) {}

Connection::~Connection() { Close(); }

bool Connection::is_client() const {
  return place_.connect.task.job == kClientJob;
}

bool Connection::trains() const {
  const std::string& job = place_.connect.task.job;
  return job != kClientJob && job != kEvaluatorJob;
}

std::shared_ptr<Cluster> Connection::cluster() const {
  absl::MutexLock lock(&mutex_);
  return cluster_;
}

std::shared_ptr<BackgroundCalls::Call> Connection::Begin(
    std::function<absl::Status()> function) {
  return closing_ ? nullptr : calls_->Start(std::move(function));
}

absl::Status Connection::StartTrace() {
  if (place_.trace.empty()) return absl::OkStatus();
  auto trace = TraceFile::Create(
      place_.trace, {.process = place_.replica,
                     .process_name = place_.connect.task.ToString()});
  if (!trace.ok()) return trace.status();
  trace_ = *std::move(trace);
  return absl::OkStatus();
}

void Connection::Start() {
  absl::MutexLock lock(&mutex_);
  connecting_ = Begin([this] { return Connect(); });
}

absl::Status Connection::Connect() {
  Cluster::Options options = place_.connect;
  options.tracer = tracer();
  options.cluster_tracer = &cluster_tracer_;
  // Only the caller's program knows how much of the computation is input.
  options.report = [this] {
    TaskReport report = meter_.Report();
    if (!tells_of_input_) report.input_wait.reset();
    return report;
  };
  options.give_up = [this] { return closing_.load(); };
  options.on_waiting = [this](const std::string& what) {
    LOG(INFO) << "waiting for " << what;
    absl::MutexLock lock(&mutex_);
    waiting_for_ = what;
  };
  HOLDFAST_ASSIGN_OR_RETURN(auto cluster, Cluster::Connect(std::move(options)));
  absl::MutexLock lock(&mutex_);
  cluster_ = std::move(cluster);
  if (closing_) cluster_->Cancel();
  return absl::OkStatus();
}

void Connection::Close() {
  std::shared_ptr<Loop> loop;
  std::shared_ptr<Cluster> cluster;
  {
    absl::MutexLock lock(&mutex_);
    if (closing_.exchange(true)) return;
    loop = loop_.lock();
    cluster = cluster_;
  }
  if (cluster != nullptr) cluster->Cancel();
  cluster.reset();
  if (loop != nullptr) loop->Drop();
  // Waits for all calls, one of which may just have created the cluster.
  std::unique_ptr<BackgroundCalls> calls;
  {
    absl::MutexLock lock(&mutex_);
    calls = std::move(calls_);
  }
  calls.reset();
  {
    absl::MutexLock lock(&mutex_);
    cluster = std::move(cluster_);
  }
  cluster.reset();
  if (trace_ != nullptr) trace_->Finish();
}

bool Connection::Wait(absl::Time until, const std::atomic<bool>& given_up,
                      absl::FunctionRef<bool(absl::Time)> done) {
  for (;;) {
    const absl::Time slice = std::min(until, SteadyNow() + kSlice);
    if (done(slice)) return true;
    if (given_up || slice == until) return false;
  }
}

Error Connection::NotYet() const {
  absl::MutexLock lock(&mutex_);
  return Error(HOLDFAST_TIMED_OUT,
               waiting_for_.empty()
                   ? "not yet"
                   : absl::StrCat("waiting for ", waiting_for_));
}

Error Connection::OfCall(const absl::Status& status) const {
  if (status.ok()) return Error();
  const std::shared_ptr<Cluster> cluster = this->cluster();
  if (closing_ || cluster == nullptr) return Closed();
  if (left_) {
    return Invalid(
        absl::StrCat(place_.connect.task.ToString(), " has left the cluster"));
  }
  return OfCluster(status, *cluster);
}

Error Connection::AwaitCall(BackgroundCalls::Call* call, absl::Time until) {
  const bool done = Wait(until, closing_, [call](absl::Time slice) {
    return call->WaitUntilDone(slice);
  });
  if (closing_) return Closed();
  if (!done) return NotYet();
  {
    absl::MutexLock lock(&mutex_);
    waiting_for_.clear();
  }
  return OfCall(call->status());
}

Error Connection::AwaitConnected(absl::Time until) {
  std::shared_ptr<BackgroundCalls::Call> call;
  {
    absl::MutexLock lock(&mutex_);
    call = connecting_;
  }
  if (call == nullptr) return Closed();
  const bool done = Wait(until, closing_, [&call](absl::Time slice) {
    return call->WaitUntilDone(slice);
  });
  if (closing_) return Closed();
  return done ? OfConnecting(call->status()) : NotYet();
}

Error Connection::CheckConnected() const {
  if (closing_) return Closed();
  if (left_) {
    return Invalid(
        absl::StrCat(place_.connect.task.ToString(), " has left the cluster"));
  }
  if (cluster() == nullptr) {
    return Invalid("not connected yet: call holdfast_await_connected first");
  }
  return Error();
}

template <typename Result>
Error Connection::Await(Pending<Result>* pending, absl::Time until,
                        std::function<absl::Status(Cluster*, Result*)> function,
                        Result* result) {
  if (Error error = CheckConnected(); !error.ok()) return error;
  Pending<Result> underway;
  {
    absl::MutexLock lock(&mutex_);
    if (pending->call == nullptr) {
      pending->result = std::make_shared<Result>();
      pending->call = Begin([cluster = cluster_, result = pending->result,
                             function = std::move(function)] {
        return function(cluster.get(), result.get());
      });
    }
    underway = *pending;
  }
  if (underway.call == nullptr) return Closed();
  Error error = AwaitCall(underway.call.get(), until);
  if (error.kind == HOLDFAST_TIMED_OUT) return error;
  {
    absl::MutexLock lock(&mutex_);
    if (pending->call == underway.call) *pending = {};
  }
  if (error.ok()) *result = *underway.result;
  return error;
}

// ---- Declaration and variables ----

Error Connection::Declare(const std::string& text,
                          absl::Span<const float* const> first_values,
                          absl::Time until) {
  if (Error error = CheckConnected(); !error.ok()) return error;
  if (is_client()) return Invalid("a client only reads: it declares nothing");
  if (!trains()) {
    return Invalid("an evaluator declares nothing: workers do");
  }
  if (Error error = own_.Take(text, first_values); !error.ok()) return error;
  Nothing nothing;
  Error error = Await<Nothing>(
      &declaring_, until,
      [this](Cluster* cluster, Nothing*) { return DeclareTo(cluster); },
      &nothing);
  if (error.kind == HOLDFAST_INVALID || error.kind == HOLDFAST_REFUSED) {
    // Forgets the declaration, so that the caller may correct it and declare it
    // again.
    own_.Withdraw();
  }
  return error;
}

absl::Status Connection::DeclareTo(Cluster* cluster) const {
  if (!is_chief()) return absl::OkStatus();
  proto::Declaration declaration = own_.declaration();
  *declaration.mutable_agreed() = own_.facts();
  const absl::Status status = cluster->Declare(declaration, StartDeadline());
  // A chief that was restarted may give other first values than before, which
  // are ignored. CheckStanding finds any other difference.
  if (absl::IsAlreadyExists(status) && own_.first_values() != nullptr) {
    return absl::OkStatus();
  }
  // The job has ended, so there is nothing left to declare. AwaitVariables
  // reports the end.
  if (IsEndOf(*cluster, status)) return absl::OkStatus();
  return status;
}

absl::Status Connection::AwaitVariablesOf(Cluster* cluster) const {
  // A restore may take any time as long as it makes progress: the coordinator
  // watches over it, and if the coordinator is silent, the wait ends, too.
  return cluster->AwaitVariables(absl::InfiniteFuture(), own_.first_values());
}

Error Connection::AwaitVariables(absl::Time until) {
  if (Error error = CheckConnected(); !error.ok()) return error;
  if (has_variables_) return Error();
  if (is_chief() && !own_.taken()) {
    return Invalid("this is the chief: call holdfast_declare first");
  }
  Nothing nothing;
  Error error = Await<Nothing>(
      &entering_, until,
      [this](Cluster* cluster, Nothing*) { return Enter(cluster); }, &nothing);
  if (error.kind == HOLDFAST_REFUSED) own_.GiveUp();
  return error;
}

absl::Status Connection::Enter(Cluster* cluster) {
  absl::Status status = AwaitVariablesOf(cluster);
  if (IsEndOf(*cluster, status)) {
    finished_before_ = true;
    status = absl::OkStatus();
  } else if (status.ok()) {
    status = own_.CheckStanding(cluster->declaration());
    // cluster->declaration() is that of the first generation.
    const AgreedFacts facts = own_.facts();
    if (status.ok() && !facts.empty() &&
        (has_variables_ || !HasFacts(cluster->declaration().agreed(), facts))) {
      status = AgreeWith(cluster, facts);
    }
  }
  if (!status.ok() || has_variables_) return status;
  if (!finished_before_) {
    declared_ = std::make_shared<const Declared>(cluster->declaration());
  } else {
    last_checkpoint_ = ReadLastCheckpoint();
    declared_ = last_checkpoint_.ok()
                    ? (*last_checkpoint_)->declared()
                    : std::make_shared<const Declared>(own_.declaration());
  }
  has_variables_ = true;
  return absl::OkStatus();
}

absl::Status Connection::AgreeWith(Cluster* cluster,
                                   const AgreedFacts& facts) const {
  proto::Declaration declaration = cluster->declaration();
  *declaration.mutable_agreed() = facts;
  const absl::Status status = cluster->Declare(declaration, AnswerDeadline());
  // Whatever waits next reports the end.
  return IsEndOf(*cluster, status) ? absl::OkStatus() : status;
}

Error Connection::Agree(const AgreedFacts& facts, absl::Time until) {
  if (Error error = CheckConnected(); !error.ok()) return error;
  if (!trains()) {
    return Invalid(
        "only workers agree on facts: a client or an evaluator "
        "does not train");
  }
  if (!has_variables_) {
    return Invalid(
        "there are no variables yet: call holdfast_await_variables first");
  }
  // A job that had already finished has nothing left to agree on. Facts that
  // the job has accepted are compared in each new generation anyway.
  if (finished_before_ || HasFacts(own_.facts(), facts)) return Error();
  Nothing nothing;
  return Await<Nothing>(
      &agreeing_, until,
      [this, facts](Cluster* cluster, Nothing*) {
        const absl::Status status = AgreeWith(cluster, facts);
        if (status.ok()) own_.AddFacts(facts);
        return status;
      },
      &nothing);
}

absl::StatusOr<std::shared_ptr<const Values>> Connection::ReadLastCheckpoint()
    const {
  const std::shared_ptr<Cluster> cluster = this->cluster();
  const std::string told =
      cluster == nullptr ? "" : cluster->state().last_checkpoint();
  if (told.empty()) {
    return absl::NotFoundError("the ps know of no checkpoint that holds them");
  }
  const char* const directory = std::getenv(kCheckpointDirVariable);
  std::vector<std::string> places;
  if (directory != nullptr && *directory != '\0') {
    places.push_back(
        absl::StrCat(directory, "/", told.substr(told.rfind('/') + 1)));
  }
  places.push_back(told);
  std::string errors;
  for (const std::string& place : places) {
    const auto values = LoadCheckpoint(place);
    if (values.ok()) {
      HOLDFAST_RETURN_IF_ERROR(
          own_.CheckStanding((*values)->declared()->declaration));
      return *values;
    }
    absl::StrAppend(&errors, errors.empty() ? "" : "; ",
                    values.status().message());
  }
  return absl::NotFoundError(absl::StrCat(
      "its last checkpoint, which holds them, cannot be read here: ", errors,
      " (", kCheckpointDirVariable,
      " may name the --checkpoint_dir of the ps, as this machine sees it)"));
}

const std::vector<VariableFacts>* Connection::variables() const {
  return has_variables_ ? &declared_->variables : nullptr;
}

std::shared_ptr<const Declared> Connection::declared() const {
  return has_variables_ ? declared_ : nullptr;
}

int32_t Connection::ExitCodeWithoutValues() const {
  // A restarted worker could not read the values of a job that had already
  // finished, either.
  return finished_before_ && !is_client() ? kExitDone : kExitFailed;
}

// ---- Questions ----

Error Connection::GetStatus(absl::Time until, std::string* json) {
  return Await<std::string>(
      &status_, until,
      [this](Cluster* cluster, std::string* json) -> absl::Status {
        HOLDFAST_ASSIGN_OR_RETURN(const auto status,
                                  cluster->GetStatus(AnswerDeadline()));
        *json = ToJson(status);
        return absl::OkStatus();
      },
      json);
}

Error Connection::SaveCheckpoint(absl::Time until, uint64_t* step) {
  return Await<uint64_t>(
      &saving_, until,
      [](Cluster* cluster, uint64_t* step) -> absl::Status {
        const auto saved = cluster->SaveCheckpoint(SteadyNow() + kSaveTimeout);
        if (!saved.ok()) return saved.status();
        *step = saved->value();
        return absl::OkStatus();
      },
      step);
}

Error Connection::ReportEvaluation(
    const proto::EvaluationResult& result,
    const std::optional<proto::CheckpointName>& checkpoint, absl::Time until) {
  Nothing nothing;
  return Await<Nothing>(
      &reporting_, until,
      [this, result, checkpoint](Cluster* cluster, Nothing*) {
        return checkpoint.has_value()
                   ? cluster->ReportEvaluation(result, *checkpoint,
                                               AnswerDeadline())
                   : cluster->ReportEvaluation(result, AnswerDeadline());
      },
      &nothing);
}

Error Connection::NextEvaluation(
    absl::Time until, std::optional<proto::CheckpointName>* checkpoint) {
  if (place_.connect.task.job != kEvaluatorJob) {
    return Invalid(absl::StrCat(
        place_.connect.task.ToString(),
        " is not an evaluator: connect with job_name \"evaluator\""));
  }
  using Found = std::optional<proto::CheckpointName>;
  return Await<Found>(
      &next_evaluation_, until,
      [](Cluster* cluster, Found* found) -> absl::Status {
        // Training may continue for days until a checkpoint is due; the loss of
        // the coordinator ends the wait.
        HOLDFAST_ASSIGN_OR_RETURN(
            auto next, cluster->NextEvaluation(absl::InfiniteFuture()));
        *found = std::move(next);
        return absl::OkStatus();
      },
      checkpoint);
}

Error Connection::Finish(absl::Time until) {
  if (!trains()) {
    return Invalid(absl::StrCat(place_.connect.task.ToString(),
                                " is not a worker: only workers end the job"));
  }
  if (Error error = CheckConnected(); !error.ok()) return error;
  if (!finishing_) {
    Nothing nothing;
    Error error = Await<Nothing>(
        &finishing_call_, until,
        [this](Cluster* cluster, Nothing*) {
          return cluster->Finish(AnswerDeadline());
        },
        &nothing);
    if (!error.ok()) return error;
    finishing_ = true;
  }
  std::shared_ptr<Loop> loop;
  {
    absl::MutexLock lock(&mutex_);
    loop = loop_.lock();
  }
  if (loop != nullptr) {
    // Passes the turns that this worker still has to answer.
    holdfast_turn turn;
    return loop->Next(until, &turn);
  }
  Nothing nothing;
  return Await<Nothing>(
      &finishing_call_, until,
      [this](Cluster* cluster, Nothing*) { return FinishJob(cluster); },
      &nothing);
}

// Waits for the end of the job without a loop, in any generation.
absl::Status Connection::FinishJob(Cluster* cluster) {
  proto::StopRequest request;
  request.set_finish(true);
  while (cluster->state().phase() != proto::DONE) {
    const auto answer = cluster->StopJob(request, AnswerDeadline());
    const proto::JobState state =
        answer.ok() ? answer->state() : cluster->state();
    if (state.phase() == proto::DONE) return absl::OkStatus();
    if (IsEnd(state.phase())) return absl::AbortedError(state.reason());
    if (answer.ok()) continue;
    if (!absl::IsNotFound(answer.status())) return answer.status();
    // The coordinator was restarted: waits until it knows this task.
    HOLDFAST_RETURN_IF_ERROR(cluster->Finish(AnswerDeadline()));
  }
  return absl::OkStatus();
}

Error Connection::Leave(const std::string& reason, absl::Time until) {
  return LeaveBy(
      [reason](Cluster* cluster) {
        return cluster->Leave(reason, SteadyNow() + kLeaveTimeout);
      },
      until);
}

Error Connection::StepDown(bool program_ended, absl::Time until) {
  return LeaveBy(
      [program_ended](Cluster* cluster) {
        return cluster->LeaveEarly(program_ended, SteadyNow() + kLeaveTimeout);
      },
      until);
}

Error Connection::LeaveBy(std::function<absl::Status(Cluster*)> leave,
                          absl::Time until) {
  if (left_ && !closing_) return Error();
  Nothing nothing;
  const Error error = Await<Nothing>(
      &leaving_, until,
      [leave = std::move(leave)](Cluster* cluster, Nothing*) {
        return leave(cluster);
      },
      &nothing);
  if (!error.ok()) return error;
  left_ = true;
  // Operations in progress would wait for answers that will never arrive.
  if (const auto cluster = this->cluster()) cluster->Cancel();
  return error;
}

absl::Time Connection::StartDeadline() const {
  return SteadyNow() + StartTimeout(own_.declaration().timeouts()) +
         place_.connect.recovery_timeout + kMargin;
}

absl::Time Connection::StepDeadline() const {
  return SteadyNow() + StepTimeout(declared_->declaration.timeouts()) +
         place_.connect.recovery_timeout + kMargin;
}

absl::Time Connection::AnswerDeadline() const {
  return SteadyNow() + place_.connect.recovery_timeout + kMargin;
}

// ---- Loops and pulls ----

Error Connection::StartLoop(const std::shared_ptr<Connection>& self,
                            bool strict, std::vector<absl::Span<float>> memory,
                            std::shared_ptr<Loop>* loop) {
  if (Error error = self->CheckConnected(); !error.ok()) return error;
  if (!self->trains()) {
    return Invalid(self->is_client() ? "a client only reads: it trains nothing"
                                     : "an evaluator trains nothing");
  }
  if (!self->has_variables_) {
    return Invalid(
        "there are no variables yet: call holdfast_await_variables first");
  }
  if (Error error = CheckMemory(*self->variables(), memory); !error.ok()) {
    return error;
  }
  TrainingLoop::Options options;
  options.memory = std::move(memory);
  options.replica = self->place_.replica;
  options.strict = strict;
  options.margin = kMargin;
  options.meter = &self->meter_;
  options.finished_before = self->finished_before_;
  options.finishing = [connection = self.get()] {
    return connection->finishing_.load();
  };
  options.last_checkpoint = [connection =
                                 self.get()]() -> TrainingLoop::Checkpoint {
    auto values = connection->finished_before_
                      ? connection->last_checkpoint_
                      : connection->ReadLastCheckpoint();
    if (!values.ok()) return values.status();
    return (*values)->parameters();
  };
  absl::MutexLock lock(&self->mutex_);
  if (self->closing_) return Closed();
  if (!self->loop_.expired()) {
    return Invalid(
        "a loop already exists: free it before starting another one");
  }
  options.enter = [connection = self.get(), cluster = self->cluster_.get()] {
    absl::Status status = connection->DeclareTo(cluster);
    if (status.ok()) status = connection->Enter(cluster);
    return status;
  };
  auto training = std::make_unique<TrainingLoop>(
      self->cluster_.get(), self->calls_.get(), &self->clock_, options);
  *loop = std::make_shared<Loop>(self, std::move(training));
  self->loop_ = *loop;
  return Error();
}

Error Connection::StartPull(uint64_t min_step, absl::Span<const RowUse> uses,
                            client::RowRequest* rows,
                            std::shared_ptr<Parameters> into,
                            std::shared_ptr<BackgroundCalls::Call>* call) {
  if (Error error = CheckConnected(); !error.ok()) return error;
  if (!has_variables_) {
    return Invalid(
        "there are no variables yet: call holdfast_await_variables first");
  }
  if (const proto::JobState state = cluster()->state();
      finished_before_ && state.phase() == proto::STOPPED) {
    return Error(HOLDFAST_STOPPED, state.reason());
  }
  if (finished_before_ && (!last_checkpoint_.ok() || !uses.empty())) {
    return Error(
        HOLDFAST_UNAVAILABLE,
        absl::StrCat("the job has already finished, and its ps no "
                     "longer have ",
                     last_checkpoint_.ok() ? "rows" : "variables", "; ",
                     last_checkpoint_.ok()
                         ? "its last checkpoint holds them"
                         : last_checkpoint_.status().message()),
        ExitCodeWithoutValues());
  }
  const absl::Status status =
      rows->Assign(declared_->declaration.tables(), uses);
  if (!status.ok()) return Invalid(std::string(status.message()));
  rows->WantFrom(into.get());
  absl::MutexLock lock(&mutex_);
  *call = Begin([this, cluster = cluster_, min_step, into = std::move(into)] {
    if (finished_before_) {
      *into = *(*last_checkpoint_)->parameters();
      return absl::OkStatus();
    }
    return Pull(cluster.get(), GlobalStep(min_step), into.get());
  });
  return *call == nullptr ? Closed() : Error();
}

absl::Status Connection::Pull(Cluster* cluster, GlobalStep min_step,
                              Parameters* into) const {
  for (;;) {
    if (is_client() && cluster->rolled_back()) {
      HOLDFAST_RETURN_IF_ERROR(cluster->AwaitVariables(StartDeadline()));
    }
    HOLDFAST_ASSIGN_OR_RETURN(const auto pin,
                              cluster->PinVersion(kPinHold, StepDeadline()));
    if (pin->version() >= min_step) {
      return pin->StartRead(into)->Await(StepDeadline());
    }
    HOLDFAST_RETURN_IF_ERROR(
        cluster->StartPull(min_step, into)->Await(StepDeadline()));
  }
}

}  // namespace holdfast::c_api
