#include "client/c_api/connection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/first_values.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/declaration_change.h"
#include "common/digest.h"
#include "common/json.h"
#include "common/shape.h"
#include "common/timeouts.h"
#include "glog/logging.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace holdfast::c_api {
namespace {

// How long a wait may go on without a look at whether it is still wanted.
constexpr absl::Duration kSlice = absl::Milliseconds(100);
constexpr absl::Duration kMargin = absl::Seconds(30);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(5);
// However long a checkpoint takes to be written: the coordinator judges it.
constexpr absl::Duration kSaveTimeout = absl::Hours(1);
constexpr absl::Duration kPinHold = absl::Minutes(10);

constexpr char kClosed[] = "the cluster is closed";

Error Closed() { return Error(HOLDFAST_BAD_HANDLE, kClosed); }

// Collects what is wrong with a text, with its line.
class ErrorCollector final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;  // The first says it.
    text_ =
        absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

absl::StatusOr<proto::Declaration> ParseDeclaration(const std::string& text) {
  ErrorCollector errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  proto::Declaration declaration;
  if (parser.ParseFromString(text, &declaration)) return declaration;
  return absl::InvalidArgumentError(
      absl::StrCat("the declaration cannot be read: ", errors.text()));
}

bool IsGiven(const proto::Variable& variable) {
  return variable.initializer().has_given();
}

Error CheckElements(const VariableFacts& variable, size_t elements) {
  if (elements == variable.elements) return Error();
  return Invalid(absl::StrCat("variable \"", variable.name, "\" has ",
                              variable.elements, " elements, not ", elements));
}

Error CheckMemory(const std::vector<VariableFacts>& variables,
                  absl::Span<const absl::Span<float>> memory) {
  if (memory.empty()) return Error();
  if (memory.size() != variables.size()) {
    return Invalid(absl::StrCat("there are ", variables.size(),
                                " variables, not ", memory.size()));
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    if (memory[i].data() == nullptr) continue;
    if (Error error = CheckElements(variables[i], memory[i].size());
        !error.ok()) {
      return error;
    }
  }
  return Error();
}

}  // namespace

VariableFacts::VariableFacts(const proto::Variable& variable)
    : name(variable.name()),
      shape(variable.shape().begin(), variable.shape().end()),
      // What was declared is valid.
      elements(static_cast<size_t>(NumElements(shape).value_or(0))),
      trainable(!variable.has_trainable() || variable.trainable()),
      moving_average(variable.has_moving_average()) {}

void VariableFacts::CopyTo(const float* data,
                           holdfast_variable* variable) const {
  variable->name = name.c_str();
  variable->shape = shape.empty() ? nullptr : shape.data();
  variable->rank = shape.size();
  variable->elements = elements;
  variable->trainable = trainable;
  variable->moving_average = moving_average;
  variable->data = data;
}

std::vector<VariableFacts> FactsOf(const proto::Declaration& declaration) {
  return {declaration.variables().begin(), declaration.variables().end()};
}

// ---- Connection ----

Connection::Connection(Place place) : place_(std::move(place)) {}

Connection::~Connection() { Close(); }

bool Connection::is_client() const {
  return place_.connect.task.job == kClientJob;
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
  // How much of the computation is input, only the caller's program knows.
  options.report = [this] {
    TaskReport report = meter_.Report();
    report.input_wait.reset();
    return report;
  };
  options.give_up = [this] { return closing_.load(); };
  options.on_waiting = [this](const std::string& what) {
    LOG(INFO) << "waiting for " << what;
    absl::MutexLock lock(&mutex_);
    waiting_for_ = what;
  };
  auto cluster = Cluster::Connect(std::move(options));
  if (!cluster.ok()) return cluster.status();
  absl::MutexLock lock(&mutex_);
  cluster_ = *std::move(cluster);
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
  // Waits for all calls, of which one may have made the cluster just now.
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
    return Invalid("not connected yet: holdfast_await_connected comes first");
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
  {
    absl::MutexLock lock(&mutex_);
    if (text_.has_value() && *text_ != text) {
      return Error(HOLDFAST_REFUSED,
                   "something else was declared by this worker before");
    }
    if (!text_.has_value()) {
      absl::StatusOr<proto::Declaration> parsed = ParseDeclaration(text);
      if (!parsed.ok()) return Invalid(std::string(parsed.status().message()));
      if (absl::Status status = TakeFirstValues(first_values, &*parsed);
          !status.ok()) {
        return Invalid(std::string(status.message()));
      }
      own_ = *std::move(parsed);
      text_ = text;
    }
  }
  Nothing nothing;
  Error error = Await<Nothing>(
      &declaring_, until,
      [this](Cluster* cluster, Nothing*) { return DeclareTo(cluster); },
      &nothing);
  if (error.kind == HOLDFAST_INVALID || error.kind == HOLDFAST_REFUSED) {
    // It may be declared better.
    absl::MutexLock lock(&mutex_);
    text_.reset();
  }
  return error;
}

absl::Status Connection::TakeFirstValues(absl::Span<const float* const> values,
                                         proto::Declaration* declaration) {
  first_values_.clear();
  if (!is_chief()) return absl::OkStatus();
  const size_t count = declaration->variables_size();
  if (!values.empty() && values.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("first values are given for ", values.size(), " of ",
                     count, " variables: NULL is one with an initializer"));
  }
  bool any = false;
  std::vector<std::vector<float>> copies(count);
  for (size_t i = 0; i < count; ++i) {
    const proto::Variable& variable = declaration->variables(i);
    const float* const from = values.empty() ? nullptr : values[i];
    if (IsGiven(variable) != (from != nullptr)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable \"", variable.name(), "\": ",
          from != nullptr
              ? "first values are given, but its initializer is another"
              : "its initializer is `given`, but no first values are"));
    }
    if (from == nullptr) continue;
    const auto elements = NumElements(variable.shape());
    if (!elements.ok()) return elements.status();
    copies[i].assign(from, from + *elements);
    any = true;
  }
  if (!any) return absl::OkStatus();
  first_values_ = std::move(copies);
  return DigestFirstValues(
      [this](size_t i) { return absl::MakeConstSpan(first_values_[i]); },
      declaration);
}

absl::Status Connection::DeclareTo(Cluster* cluster) const {
  if (!is_chief()) return absl::OkStatus();
  const absl::Status status = cluster->Declare(own_, StartDeadline());
  // A chief that was started again may have made other first values; what
  // differs besides is found by CheckDeclared.
  if (absl::IsAlreadyExists(status) && !first_values_.empty()) {
    return absl::OkStatus();
  }
  return status;
}

absl::Status Connection::AwaitVariablesOf(Cluster* cluster) const {
  FirstValues values;
  if (!first_values_.empty()) {
    values = [this](size_t i) { return absl::MakeConstSpan(first_values_[i]); };
  }
  // A restore may take as long as it moves: the coordinator judges it, and
  // without a word of the coordinator the wait ends too.
  return cluster->AwaitVariables(absl::InfiniteFuture(), values);
}

Error Connection::AwaitVariables(absl::Time until) {
  if (Error error = CheckConnected(); !error.ok()) return error;
  if (has_variables_) return Error();
  {
    absl::MutexLock lock(&mutex_);
    if (is_chief() && !text_.has_value()) {
      return Invalid("this is the chief: holdfast_declare comes first");
    }
  }
  Nothing nothing;
  return Await<Nothing>(
      &entering_, until,
      [this](Cluster* cluster, Nothing*) { return Enter(cluster); }, &nothing);
}

absl::Status Connection::Enter(Cluster* cluster) {
  absl::Status status = AwaitVariablesOf(cluster);
  if (absl::IsFailedPrecondition(status) &&
      cluster->state().phase() == proto::DONE) {
    finished_before_ = true;
    status = absl::OkStatus();
  } else if (status.ok()) {
    status = CheckDeclared(cluster->declaration());
  }
  if (!status.ok() || has_variables_) return status;
  if (!finished_before_) {
    declaration_ = cluster->declaration();
    variables_ = FactsOf(declaration_);
  }
  has_variables_ = true;
  return absl::OkStatus();
}

absl::Status Connection::CheckDeclared(const proto::Declaration& stands) const {
  {
    absl::MutexLock lock(&mutex_);
    if (!text_.has_value()) return absl::OkStatus();
  }
  const std::string change = FirstChange(stands, own_, Declarer::kOther);
  if (change.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(place_.connect.task.ToString(),
                   " declares otherwise than was declared before: ", change,
                   WaysOutOfChange(stands)));
}

const std::vector<VariableFacts>* Connection::variables() const {
  return has_variables_ ? &variables_ : nullptr;
}

const proto::Declaration* Connection::declaration() const {
  return has_variables_ ? &declaration_ : nullptr;
}

// ---- Questions ----

Error Connection::GetStatus(absl::Time until, std::string* json) {
  return Await<std::string>(
      &status_, until,
      [this](Cluster* cluster, std::string* json) -> absl::Status {
        const auto status = cluster->GetStatus(AnswerDeadline());
        if (!status.ok()) return status.status();
        *json = ToJson(*status);
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

Error Connection::ReportEvaluation(const proto::EvaluationResult& result,
                                   absl::Time until) {
  Nothing nothing;
  return Await<Nothing>(
      &reporting_, until,
      [this, result](Cluster* cluster, Nothing*) {
        return cluster->ReportEvaluation(result, AnswerDeadline());
      },
      &nothing);
}

Error Connection::Leave(const std::string& reason, absl::Time until) {
  if (left_ && !closing_) return Error();
  Nothing nothing;
  const Error error = Await<Nothing>(
      &leaving_, until,
      [reason](Cluster* cluster, Nothing*) {
        return cluster->Leave(reason, SteadyNow() + kLeaveTimeout);
      },
      &nothing);
  if (!error.ok()) return error;
  left_ = true;
  // What is under way would wait for answers that will not come.
  if (const auto cluster = this->cluster()) cluster->Cancel();
  return error;
}

absl::Time Connection::StartDeadline() const {
  return SteadyNow() + StartTimeout(own_.timeouts()) +
         place_.connect.recovery_timeout + kMargin;
}

absl::Time Connection::StepDeadline() const {
  return SteadyNow() + StepTimeout(declaration_.timeouts()) +
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
  if (self->is_client()) {
    return Invalid("a client only reads: it trains nothing");
  }
  if (!self->has_variables_) {
    return Invalid(
        "there are no variables yet: holdfast_await_variables comes first");
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
  absl::MutexLock lock(&self->mutex_);
  if (self->closing_) return Closed();
  if (!self->loop_.expired()) {
    return Invalid("there is a loop: free it before another one is begun");
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

Error Connection::StartPull(uint64_t min_step, std::shared_ptr<Parameters> into,
                            std::shared_ptr<BackgroundCalls::Call>* call) {
  if (Error error = CheckConnected(); !error.ok()) return error;
  if (!has_variables_) {
    return Invalid(
        "there are no variables yet: holdfast_await_variables comes first");
  }
  if (finished_before_) {
    return Error(HOLDFAST_UNAVAILABLE,
                 "the job was finished before, and has no variables any more; "
                 "its last checkpoint holds them",
                 1);
  }
  absl::MutexLock lock(&mutex_);
  *call = Begin([this, cluster = cluster_, min_step, into = std::move(into)] {
    return Pull(cluster.get(), GlobalStep(min_step), into.get());
  });
  return *call == nullptr ? Closed() : Error();
}

absl::Status Connection::Pull(Cluster* cluster, GlobalStep min_step,
                              Parameters* into) const {
  for (;;) {
    if (is_client() && cluster->rolled_back()) {
      absl::Status status = cluster->AwaitVariables(StartDeadline());
      if (!status.ok()) return status;
    }
    const auto pin = cluster->PinVersion(kPinHold, StepDeadline());
    if (!pin.ok()) return pin.status();
    if ((*pin)->version() >= min_step) {
      return (*pin)->StartRead(into)->Await(StepDeadline());
    }
    absl::Status status =
        cluster->StartPull(min_step, into)->Await(StepDeadline());
    if (!status.ok()) return status;
  }
}

// ---- Loop ----

Loop::Loop(std::shared_ptr<Connection> connection,
           std::unique_ptr<TrainingLoop> loop)
    : connection_(std::move(connection)),
      tracer_(connection_->tracer()),
      loop_(std::move(loop)),
      memory_(loop_->memory()) {
  if (tracer_ == nullptr) return;
  tracer_->NameThread("trainer");
  since_ = tracer_->Now();
}

void Loop::Drop() {
  given_up_ = true;
  absl::MutexLock lock(&mutex_);
  loop_.reset();
}

Error Loop::Next(absl::Time until, holdfast_turn* turn) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<std::optional<TrainingLoop::Turn>> next = std::nullopt;
  const bool done = Connection::Wait(until, given_up_, [&](absl::Time slice) {
    mutex_.AssertHeld();
    if (loop_ == nullptr) return true;
    next = loop_->Next(slice);
    return !next.ok() || next->has_value();
  });
  if (loop_ == nullptr || given_up_) return Closed();
  if (!next.ok()) return connection_->OfCall(next.status());
  if (!done) return connection_->NotYet();
  const TrainingLoop::Turn& from = **next;
  *turn = {};
  turn->done = from.done;
  turn->rolled_back = from.rolled_back;
  turn->batch = from.batch;
  turn->step = from.step.value();
  turn->seat = from.seat;
  turn->values = loop_->values_set();
  turn->loss_scale = from.done ? 0 : from.loss_scale;
  if (tracer_ != nullptr) {
    const absl::Time now = tracer_->Now();
    tracer_->AddHere({TraceKind::kWait, "turn", since_, now});
    since_ = now;
    batch_ = from.batch;
  }
  return Error();
}

void Loop::TraceGradient() {
  if (tracer_ == nullptr) return;
  const absl::Time now = tracer_->Now();
  tracer_->AddHere({TraceKind::kModel,
                    "gradient",
                    since_,
                    now,
                    {{"batch", static_cast<int64_t>(batch_)}}});
  since_ = now;
}

Error Loop::CheckCount(size_t count) const {
  const size_t variables = connection_->variables()->size();
  if (count == variables) return Error();
  return Invalid(
      absl::StrCat("there are ", variables, " variables, not ", count));
}

Error Loop::Values(absl::Span<const float*> values) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  const auto parameters = loop_->values();
  if (!parameters.ok()) {
    return Error(HOLDFAST_UNAVAILABLE,
                 std::string(parameters.status().message()), 1);
  }
  if (Error error = CheckCount(values.size()); !error.ok()) return error;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = (*parameters)->Of(i).data();
  }
  return Error();
}

Error Loop::Read(absl::Span<float* const> into,
                 absl::Span<const size_t> elements) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  const auto parameters = loop_->values();
  if (!parameters.ok()) {
    return Error(HOLDFAST_UNAVAILABLE,
                 std::string(parameters.status().message()), 1);
  }
  if (Error error = CheckCount(into.size()); !error.ok()) return error;
  for (size_t i = 0; i < into.size(); ++i) {
    if (into[i] == nullptr) continue;
    if (Error error =
            CheckElements((*connection_->variables())[i], elements[i]);
        !error.ok()) {
      return error;
    }
  }
  for (size_t i = 0; i < into.size(); ++i) {
    const absl::Span<const float> values = (*parameters)->Of(i);
    if (into[i] == nullptr || values.empty()) continue;
    std::memcpy(into[i], values.data(), values.size() * sizeof(float));
  }
  return Error();
}

Error Loop::AddLocked(size_t variable, absl::Span<const float> gradient) {
  if (loop_ == nullptr) return Closed();
  return connection_->OfCall(loop_->Add(variable, gradient));
}

Error Loop::Add(size_t variable, absl::Span<const float> gradient) {
  absl::MutexLock lock(&mutex_);
  return AddLocked(variable, gradient);
}

Error Loop::Contribute(const TrainingLoop::Gradient& gradient) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  TraceGradient();
  return connection_->OfCall(loop_->Contribute(gradient));
}

Error Loop::Push(absl::Span<const float* const> gradients,
                 absl::Span<const size_t> elements,
                 const TrainingLoop::Gradient& gradient) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] == nullptr) continue;
    Error error = AddLocked(i, {gradients[i], elements[i]});
    if (!error.ok()) return error;
  }
  TraceGradient();
  return connection_->OfCall(loop_->Contribute(gradient));
}

Error Loop::Outcome(holdfast_outcome* outcome) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  const TrainingLoop::Counts& counts = loop_->counts();
  *outcome = {};
  switch (counts.verdict) {
    case proto::ACCEPTED:
      outcome->verdict = HOLDFAST_ACCEPTED;
      break;
    case proto::STALE:
      outcome->verdict = HOLDFAST_STALE;
      break;
    case proto::DUPLICATE:
      outcome->verdict = HOLDFAST_DUPLICATE;
      break;
    default:
      outcome->verdict = HOLDFAST_NO_VERDICT;
  }
  outcome->staleness = counts.staleness;
  outcome->accepted = counts.accepted;
  outcome->stale = counts.stale;
  outcome->duplicate = counts.duplicate;
  outcome->not_finite = counts.not_finite;
  outcome->roll_backs = counts.roll_backs;
  return Error();
}

// ---- Values ----

Values::Values(std::shared_ptr<Connection> connection,
               std::shared_ptr<Parameters> values,
               std::shared_ptr<BackgroundCalls::Call> call)
    : connection_(std::move(connection)),
      values_(std::move(values)),
      call_(std::move(call)),
      declaration_(*connection_->declaration()),
      facts_(FactsOf(declaration_)) {}

Values::Values(proto::Declaration declaration,
               std::shared_ptr<Parameters> values)
    : values_(std::move(values)),
      here_(true),
      declaration_(std::move(declaration)),
      facts_(FactsOf(declaration_)) {}

Error Values::Await(absl::Time until) {
  if (here_) return Error();
  const bool done = Connection::Wait(
      until, given_up_,
      [this](absl::Time slice) { return call_->WaitUntilDone(slice); });
  if (given_up_) return Error(HOLDFAST_BAD_HANDLE, "the values were freed");
  if (!done) return connection_->NotYet();
  Error error = connection_->OfCall(call_->status());
  if (error.ok()) here_ = true;
  return error;
}

Error Values::Check() const {
  return here_ ? Error()
               : Invalid(
                     "the values are not here: holdfast_values_wait comes "
                     "first");
}

void Values::GetVariable(size_t index, holdfast_variable* variable) const {
  facts_[index].CopyTo(values_->values[index].data(), variable);
}

std::string Values::Digest() const {
  const std::vector<proto::Variable> variables(declaration_.variables().begin(),
                                               declaration_.variables().end());
  return DigestOfVariables(variables, values_->values);
}

absl::StatusOr<std::shared_ptr<Values>> LoadCheckpoint(
    const std::string& path) {
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const bool is_one =
      ParseFolderName(folder.substr(folder.rfind('/') + 1)).ok();
  if (!is_one) {
    const auto directory =
        CheckpointDirectory::OpenToRead(folder, PosixFileSystem());
    if (!directory.ok()) return directory.status();
    const auto journal = directory->ReadJournal();
    if (!journal.ok()) return journal.status();
    if (journal->checkpoints().empty()) {
      return absl::NotFoundError(
          absl::StrCat(path, ": no checkpoint is durable"));
    }
    folder = directory->Folder(*journal->checkpoints().rbegin());
  }
  const auto reader = CheckpointReader::OpenFolder(folder, PosixFileSystem());
  if (!reader.ok()) return reader.status();
  const proto::Manifest& manifest = (*reader)->manifest();
  auto values = std::make_shared<Parameters>();
  values->version = GlobalStep(manifest.name().step());
  for (const proto::Variable& variable : manifest.declaration().variables()) {
    const auto elements = NumElements(variable.shape());
    if (!elements.ok()) return elements.status();
    std::vector<float>& into = values->values.emplace_back(*elements);
    const absl::Status status =
        (*reader)->Read(variable.name(), 0, 0, absl::MakeSpan(into));
    if (!status.ok()) return status;
  }
  return std::make_shared<Values>(manifest.declaration(), std::move(values));
}

}  // namespace holdfast::c_api
