// SPDX-License-Identifier: Apache-2.0
#include "client/training_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/timeouts.h"
#include "common/tensor/norm.h"
#include "common/tensor/shape.h"
#include "glog/logging.h"
#include "proto/training.pb.h"

namespace holdfast {
namespace {

// The limit of ContributeRequest.examples and ApplyRequest.examples.
constexpr uint64_t kMaxExamples = 1'000'000'000'000;

// Reads the last version of a job that is done.
absl::Status ReadFinalValues(Cluster* cluster, absl::Duration hold,
                             absl::Time deadline, Parameters* into) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto pin,
                            cluster->PinVersion(hold, deadline));
  absl::Status status = pin->StartRead(into)->Await(deadline);
  if (!status.ok()) return status;
  // The version is total_steps, unless the job was ended early.
  if (into->AllAt(into->version)) return status;
  return absl::InternalError(
      absl::StrCat("the ps are at different versions, the least at ",
                   into->version.value()));
}

// For a loop that cannot read checkpoints.
absl::Status NoCheckpoint() {
  return absl::NotFoundError("its last checkpoint, if any, holds them");
}

}  // namespace

TrainingLoop::TrainingLoop(Cluster* cluster, BackgroundCalls* calls,
                           const Clock* clock, Options options)
    : cluster_(*cluster),
      calls_(*calls),
      clock_(*clock),
      options_(std::move(options)),
      sets_(client::ValueSets::Make(
          options_.finished_before ? 0
                                   : cluster->declaration().variables_size(),
          options_.memory)),
      now_(sets_->Take()) {
  if (const proto::JobState state = cluster_.state();
      options_.finished_before && state.phase() == proto::STOPPED) {
    broken_ = values_status_ = absl::AbortedError(state.reason());
    stage_ = Stage::kDone;
    return;
  }
  if (options_.finished_before) {
    TakeLastCheckpoint(
        options_.last_checkpoint ? options_.last_checkpoint() : NoCheckpoint(),
        "the job has already finished, and its ps no longer have variables");
    stage_ = Stage::kDone;
    return;
  }
  ReadDeclaration();
  // A strict loop before this one ended with the roll-back.
  rolled_back_ = cluster_.rolled_back();
  if (rolled_back_) stage_ = Stage::kEnter;
}

TrainingLoop::~TrainingLoop() {
  if (options_.meter != nullptr) options_.meter->EndTraining();
}

void TrainingLoop::Meter() {
  if (options_.meter == nullptr) return;
  switch (stage_) {
    case Stage::kBegin:
      return options_.meter->BeginTraining();
    case Stage::kValues:
    case Stage::kNewest:
      return Meter(PhaseMeter::Phase::kVersion);
    case Stage::kSeat:
      if (mode_.by_ticket) Meter(PhaseMeter::Phase::kTicket);
      return;
    case Stage::kTurn:
      return Meter(PhaseMeter::Phase::kCompute);
    case Stage::kHeld:
      return Meter(PhaseMeter::Phase::kPush);
    case Stage::kExchanged:
    case Stage::kVerdicts:
    case Stage::kOldest:
    case Stage::kLast:
      return Meter(PhaseMeter::Phase::kVerdict);
    case Stage::kTicket:
      return Meter(PhaseMeter::Phase::kTicket);
    case Stage::kEnter:
    case Stage::kAwaitDone:
    case Stage::kFinalValues:
    case Stage::kDone:
      return options_.meter->EndTraining();
  }
}

void TrainingLoop::Meter(PhaseMeter::Phase phase) {
  if (options_.meter != nullptr) options_.meter->Enter(phase);
}

void TrainingLoop::MeterStep(const char* what, uint64_t number) {
  if (options_.meter == nullptr) return;
  options_.meter->Enter(PhaseMeter::Phase::kOther);
  options_.meter->BeginStep(what, number);
}

void TrainingLoop::ReadDeclaration() {
  const proto::Declaration& declared = cluster_.declaration();
  const auto& consistency = declared.consistency();
  mode_.asynchronous = consistency.has_asynchronous();
  mode_.by_ticket =
      mode_.asynchronous || declared.examples() == proto::BY_TICKET;
  mode_.total_steps = GlobalStep(declared.total_steps());
  if (declared.clipping().has_global_norm()) {
    mode_.max_global_norm = declared.clipping().global_norm();
  }
  if (mode_.asynchronous) {
    const auto& asynchronous = consistency.asynchronous();
    mode_.pipeline_depth = std::max(1u, asynchronous.pipeline_depth());
    mode_.has_bound = asynchronous.has_staleness_bound();
    // A request waits for workers that are too far behind, or, when no ticket
    // is left, for tickets that workers still hold. Meanwhile each worker can
    // book as many pushes as the bound lets it be ahead, and those that it
    // holds tickets for.
    mode_.longest_wait =
        std::max(1u, declared.num_workers()) *
        (uint64_t{asynchronous.staleness_bound()} + mode_.pipeline_depth + 2);
  } else {
    const auto& synchronous = consistency.synchronous();
    const uint32_t replicas = std::max(1u, synchronous.total_num_replicas());
    mode_.seats_per_step =
        std::max(synchronous.replicas_to_aggregate(), replicas);
    for (uint32_t seat = options_.replica; seat < mode_.seats_per_step;
         seat += replicas) {
      mode_.seats.push_back(seat);
    }
  }
  for (const proto::Variable& variable : declared.variables()) {
    VariableFacts facts;
    facts.name = variable.name();
    // The declaration has been validated.
    facts.size = static_cast<size_t>(NumElements(variable.shape()).value_or(0));
    facts.trainable = !variable.has_trainable() || variable.trainable();
    facts.in_norm = !variable.has_moving_average();
    num_trainable_ += facts.trainable;
    if (variable.compression().pull() != proto::EXACT) {
      mode_.exact_pulls = false;
    }
    variables_.push_back(std::move(facts));
  }
  squares_.resize(variables_.size());
  rows_of_turn_.resize(declared.tables_size());
  row_squares_.resize(declared.tables_size());
  tables_ = declared.tables();
  rows_.WantVariables(false);
}

// ---- The caller's operations ----

absl::StatusOr<std::optional<TrainingLoop::Turn>> TrainingLoop::Next(
    absl::Time until) {
  if (!broken_.ok()) return broken_;
  if (stage_ == Stage::kTurn && failed_.ok()) {
    if (!finishing()) {
      return absl::FailedPreconditionError(
          absl::StrCat("batch ", turn_.batch,
                       " was not contributed: push its gradient, or pass it "
                       "with 0 examples"));
    }
    HOLDFAST_RETURN_IF_ERROR(Contribute(Gradient()));
  }
  while (stage_ != Stage::kDone) {
    Meter();
    const absl::StatusOr<Progress> progress =
        failed_.ok() ? Advance(until) : failed_;
    failed_ = absl::OkStatus();
    if (!progress.ok()) {
      broken_ = Recover(progress.status());
      if (!broken_.ok()) return broken_;
    } else if (*progress == Progress::kLater) {
      return std::nullopt;
    } else if (*progress == Progress::kTurn && finishing()) {
      HOLDFAST_RETURN_IF_ERROR(Contribute(Gradient()));
    } else if (*progress == Progress::kTurn) {
      Meter();
      turn_.number = ++num_turns_;
      turn_.rolled_back = std::exchange(rolled_back_, false);
      return turn_;
    }
  }
  Meter();
  turn_ = Turn();
  turn_.done = true;
  turn_.step = now().version;
  turn_.rolled_back = std::exchange(rolled_back_, false);
  return turn_;
}

std::optional<TrainingLoop::Turn> TrainingLoop::Current() const {
  const bool handed_out = stage_ == Stage::kTurn && failed_.ok();
  if (!broken_.ok() || !(handed_out || turn_.done)) return std::nullopt;
  return turn_;
}

absl::Status TrainingLoop::Restart() {
  if (stage_ != Stage::kTurn) {
    return absl::FailedPreconditionError("there is no turn to restart");
  }
  // The push has failed, and the turn with it: Next goes on.
  if (!failed_.ok()) return absl::OkStatus();
  std::unique_ptr<Cluster::Push>& push = underway_.back().push;
  push = push->StartAgain();
  ForgetHandedIn();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Parameters>> TrainingLoop::values() const {
  if (!values_status_.ok()) return values_status_;
  return std::shared_ptr<const Parameters>(now_, &now_->values);
}

absl::StatusOr<std::vector<absl::Span<const float>>>
TrainingLoop::ValuesAtFixedPlace() {
  if (!values_status_.ok()) return values_status_;
  std::vector<absl::Span<const float>> values;
  for (size_t i = 0; i < now().size(); ++i) {
    values.push_back(now().AtFixedPlace(i));
  }
  return values;
}

absl::Span<float> TrainingLoop::Memory(size_t variable) {
  if (stage_ != Stage::kTurn) return {};
  return underway_.back().push->Memory(variable);
}

absl::Status TrainingLoop::Add(size_t variable,
                               absl::Span<const float> gradient) {
  if (stage_ != Stage::kTurn) {
    return absl::FailedPreconditionError("there is no turn to push for");
  }
  if (!failed_.ok()) return absl::OkStatus();
  handed_in_ = true;
  const bool fits =
      variable < variables_.size() && variables_[variable].trainable &&
      gradient.size() == variables_[variable].size && !added_[variable];
  if (fits) {
    finite_ = finite_ && AllFinite(gradient);
    if (!finite_) return absl::OkStatus();
    if (mode_.max_global_norm.has_value() && variables_[variable].in_norm) {
      squares_[variable] = SumOfSquares(gradient);
    }
  }
  Underway& hand = underway_.back();
  if (fits && pipelined()) {
    absl::Span<float> memory = hand.push->Memory(variable);
    if (memory.empty()) {
      std::vector<float>& copy = hand.memory.gradient[variable];
      copy.resize(gradient.size());
      memory = absl::MakeSpan(copy);
    }
    if (memory.data() != gradient.data()) {
      std::copy(gradient.begin(), gradient.end(), memory.begin());
    }
    gradient = memory;
  }
  const absl::Status status = hand.push->Add(variable, gradient);
  if (absl::IsInvalidArgument(status)) return status;
  if (!status.ok()) {
    failed_ = status;
    return absl::OkStatus();
  }
  if (!added_[variable]) ++num_added_;
  added_[variable] = true;
  return absl::OkStatus();
}

absl::Status TrainingLoop::Contribute(const Gradient& gradient) {
  if (stage_ != Stage::kTurn) {
    return absl::FailedPreconditionError("there is no turn to contribute to");
  }
  const float clip_factor = gradient.clip_factor.value_or(1);
  if (!(clip_factor >= 0 && clip_factor <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("clip_factor is ", clip_factor, ", must be from 0 to 1"));
  }
  if (gradient.examples > kMaxExamples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "examples is ", gradient.examples, ", must be at most ", kMaxExamples));
  }
  const bool finite_rows =
      std::find(rows_of_turn_.begin(), rows_of_turn_.end(),
                RowsOfTurn::kNotFinite) == rows_of_turn_.end();
  const bool finite =
      finite_ && finite_rows && std::isfinite(gradient.loss.value_or(0));
  const bool counts = gradient.examples > 0 && finite;
  if (failed_.ok() && counts && num_added_ < num_trainable_) {
    size_t missing = 0;
    while (added_[missing] || !variables_[missing].trainable) ++missing;
    return absl::InvalidArgumentError(
        absl::StrCat("the gradients of ", num_trainable_ - num_added_, " of ",
                     num_trainable_,
                     " trainable variables were not handed in; the first is "
                     "of \"",
                     variables_[missing].name, "\""));
  }
  Meter(PhaseMeter::Phase::kPush);
  if (row_pull_ != nullptr) {
    row_pull_.reset();
    wait_ends_.reset();
  }
  contribution_ = Contribution();
  if (!mode_.asynchronous) contribution_.seat = turn_.seat;
  if (counts) {
    contribution_.examples = gradient.examples;
    contribution_.loss = gradient.loss;
    contribution_.clip_factor = clip_factor;
    if (!gradient.clip_factor.has_value() && mode_.max_global_norm) {
      double sum = 0;
      for (const double square : squares_) sum += square;
      for (const double square : row_squares_) sum += square;
      contribution_.clip_factor =
          ClipFactor(std::sqrt(sum), *mode_.max_global_norm);
    }
  } else if (gradient.examples > 0) {
    contribution_.not_finite = true;
    ++counts_.not_finite;
    LOG_EVERY_N(WARNING, 100)
        << underway_.back().name << ": "
        << (finite_ && finite_rows ? "the loss" : "a gradient")
        << " is not a finite number; contributes nothing";
  }
  if (!failed_.ok()) return absl::OkStatus();

  Cluster::Push& push = *underway_.back().push;
  if (!exchanges() && !mode_.asynchronous && contribution_.examples > 0) {
    // Sends the parts that have not been sent.
    push.WaitUntilHeld(absl::InfinitePast());
    stage_ = Stage::kHeld;
    return absl::OkStatus();
  }
  failed_ = push.Contribute(contribution_, exchanges() ? &PullInto() : nullptr);
  ++seats_filled_;
  stage_ = mode_.asynchronous ? Stage::kOldest
           : exchanges()      ? Stage::kExchanged
                              : Stage::kSeat;
  Meter(PhaseMeter::Phase::kOther);
  return absl::OkStatus();
}

void TrainingLoop::WaitsForInput(bool waits) {
  if (waits) return Meter(PhaseMeter::Phase::kInput);
  Meter(stage_ == Stage::kTurn ? PhaseMeter::Phase::kCompute
                               : PhaseMeter::Phase::kOther);
}

// ---- The stages ----

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::Advance(absl::Time until) {
  switch (stage_) {
    case Stage::kEnter:
      return Enter(until);
    case Stage::kBegin:
      return Begin();
    case Stage::kValues:
      return AwaitValues(until);
    case Stage::kSeat:
      return TakeSeat(until);
    case Stage::kHeld:
      return AwaitHeld(until);
    case Stage::kExchanged:
      return AwaitExchanged(until);
    case Stage::kVerdicts:
      return AwaitVerdicts(until);
    case Stage::kOldest:
      return AwaitOldest(until);
    case Stage::kTicket:
      return AwaitTicket(until);
    case Stage::kNewest:
      return AwaitNewest(until);
    case Stage::kLast:
      return AwaitLast(until);
    case Stage::kAwaitDone:
      return AwaitDone(until);
    case Stage::kFinalValues:
      return AwaitFinalValues(until);
    case Stage::kTurn:
    case Stage::kDone:
      break;
  }
  return absl::InternalError("there is nothing to wait for");
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::Enter(absl::Time until) {
  if (call_ == nullptr) call_ = calls_.Start(options_.enter);
  if (!call_->WaitUntilDone(until)) return Progress::kLater;
  HOLDFAST_RETURN_IF_ERROR(std::exchange(call_, nullptr)->status());
  stage_ = Stage::kBegin;
  return Progress::kOn;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::Begin() {
  if (cluster_.state().phase() == proto::DONE) {
    // The worker has come after the end, which may have been an early one.
    BeginEnd();
  } else if (mode_.asynchronous) {
    request_ = cluster_.StartTakeTicket();
    stage_ = Stage::kOldest;
  } else {
    pull_ = cluster_.StartPull(GlobalStep(0), &PullInto());
    stage_ = Stage::kValues;
  }
  return Progress::kOn;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitValues(
    absl::Time until) {
  if (!IsReady(pull_.get(), until)) return Progress::kLater;
  const absl::Status status = pull_->Await(*std::exchange(wait_ends_, {}));
  pull_.reset();
  if (!status.ok()) return status;
  OpenStep();
  return Progress::kOn;
}

void TrainingLoop::OpenStep() {
  Proceed();
  seats_filled_ = 0;
  if (spent_ || now().version >= mode_.total_steps) {
    BeginEnd();
  } else {
    stage_ = Stage::kSeat;
    MeterStep("step", now().version.value());
  }
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::TakeSeat(
    absl::Time until) {
  if (seats_filled_ == mode_.seats.size()) {
    CloseStep();
    return Progress::kOn;
  }
  if (mode_.by_ticket) {
    const absl::StatusOr<Progress> progress = HaveTicket(until);
    if (!progress.ok() || *progress == Progress::kLater) return progress;
    if (spent_ || ticket_->global_step > now().version) {
      CloseStep();
      return Progress::kOn;
    }
  }
  Turn turn;
  turn.step = now().version;
  turn.seat = mode_.seats[seats_filled_];
  turn.loss_scale = now().loss_scale;
  turn.batch = mode_.by_ticket
                   ? ticket_->index
                   : turn.step.value() * mode_.seats_per_step + turn.seat;
  std::string name = absl::StrCat("the push for step ", turn.step.value(),
                                  ", seat ", turn.seat);
  auto push = mode_.by_ticket ? cluster_.StartPush(*ticket_, now())
                              : cluster_.StartPush(turn.step);
  ticket_.reset();
  return HandOut(std::move(turn), std::move(name), std::move(push));
}

TrainingLoop::Progress TrainingLoop::HandOut(
    Turn turn, std::string name, std::unique_ptr<Cluster::Push> push) {
  Underway underway;
  underway.name = std::move(name);
  underway.push = std::move(push);
  if (!spare_.empty()) {
    underway.memory = std::move(spare_.back());
    spare_.pop_back();
  }
  if (pipelined()) underway.memory.gradient.resize(variables_.size());
  underway.memory.rows.resize(rows_of_turn_.size());
  underway_.push_back(std::move(underway));
  ForgetHandedIn();
  turn_ = std::move(turn);
  stage_ = Stage::kTurn;
  return Progress::kTurn;
}

void TrainingLoop::ForgetHandedIn() {
  handed_in_ = false;
  added_.assign(variables_.size(), false);
  num_added_ = 0;
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (!variables_[i].trainable || variables_[i].size > 0) continue;
    added_[i] = true;
    ++num_added_;
  }
  finite_ = true;
  std::fill(squares_.begin(), squares_.end(), 0);
  std::fill(rows_of_turn_.begin(), rows_of_turn_.end(), RowsOfTurn::kNone);
  std::fill(row_squares_.begin(), row_squares_.end(), 0);
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitHeld(
    absl::Time until) {
  Cluster::Push& push = *underway_.back().push;
  if (!wait_ends_.has_value()) wait_ends_ = StepDeadline();
  if (!push.WaitUntilHeld(std::min(until, *wait_ends_)) &&
      clock_.Now() < *wait_ends_) {
    return Progress::kLater;
  }
  absl::Status status = push.AwaitHeld(*std::exchange(wait_ends_, {}));
  if (status.ok()) status = push.Contribute(contribution_);
  if (!status.ok()) return status;
  ++seats_filled_;
  stage_ = Stage::kSeat;
  return Progress::kOn;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::FinishOldest(
    absl::Time until) {
  Underway& oldest = underway_.front();
  if (!IsReady(oldest.push.get(), until)) return Progress::kLater;
  const auto outcome = oldest.push->Await(*std::exchange(wait_ends_, {}));
  if (!outcome.ok()) return outcome.status();
  HOLDFAST_RETURN_IF_ERROR(OnOutcome(*outcome, oldest.name));
  oldest.push.reset();
  spare_.push_back(std::move(oldest.memory));
  underway_.pop_front();
  // A synchronous step ends with the last verdict.
  if (options_.meter != nullptr && (mode_.asynchronous || underway_.empty())) {
    options_.meter->FinishStep();
  }
  return Progress::kOn;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitExchanged(
    absl::Time until) {
  const absl::StatusOr<Progress> progress = FinishOldest(until);
  if (progress.ok() && *progress == Progress::kOn) OpenStep();
  return progress;
}

void TrainingLoop::CloseStep() {
  GlobalStep version = now().version.next();
  if (ticket_.has_value()) version = std::max(version, ticket_->global_step);
  if (!spent_) pull_ = cluster_.StartPull(version, &PullInto());
  stage_ = Stage::kVerdicts;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitVerdicts(
    absl::Time until) {
  while (!underway_.empty()) {
    const absl::StatusOr<Progress> progress = FinishOldest(until);
    if (!progress.ok() || *progress == Progress::kLater) return progress;
  }
  if (mode_.by_ticket) {
    const absl::StatusOr<Progress> progress = HaveTicket(until);
    if (!progress.ok() || *progress == Progress::kLater) return progress;
  }
  if (spent_) {
    pull_.reset();
    BeginEnd();
  } else {
    stage_ = Stage::kValues;
  }
  return Progress::kOn;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::HaveTicket(
    absl::Time until) {
  if (spent_ || ticket_.has_value()) return Progress::kOn;
  if (request_ == nullptr) request_ = cluster_.StartTakeTicket();
  // The wait ends when the tickets that workers hold are spent or returned: at
  // least one with each step that closes.
  if (!IsReady(request_.get(), until, uint64_t{mode_.seats_per_step} + 1)) {
    return Progress::kLater;
  }
  auto ticket = request_->Await(*std::exchange(wait_ends_, {}));
  request_.reset();
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);
  spent_ = !ticket_.has_value();
  return Progress::kOn;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitOldest(
    absl::Time until) {
  // Before the ticket: the worker may hold one ticket more than pipeline_depth,
  // and a failed push gives a better error than a ticket that does not arrive.
  if (underway_.size() >= mode_.pipeline_depth) {
    const absl::StatusOr<Progress> progress = FinishOldest(until);
    if (!progress.ok() || *progress == Progress::kLater) return progress;
    pulled_ = exchanges() && counts_.verdict == proto::ACCEPTED;
    if (pulled_) Proceed();
  }
  stage_ = Stage::kTicket;
  return Progress::kOn;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitTicket(
    absl::Time until) {
  if (!IsReady(request_.get(), until, mode_.longest_wait)) {
    return Progress::kLater;
  }
  auto ticket = request_->Await(*std::exchange(wait_ends_, {}));
  request_.reset();
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);
  if (!ticket_.has_value()) {
    stage_ = Stage::kLast;
    return Progress::kOn;
  }
  MeterStep("ticket", ticket_->index);
  request_ = cluster_.StartTakeTicket();
  if (!pulled_) pull_ = cluster_.StartPull(GlobalStep(0), &PullInto());
  stage_ = Stage::kNewest;
  return Progress::kOn;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitNewest(
    absl::Time until) {
  if (pull_ != nullptr) {
    if (!IsReady(pull_.get(), until)) return Progress::kLater;
    const absl::Status status = pull_->Await(*std::exchange(wait_ends_, {}));
    pull_.reset();
    if (!status.ok()) return status;
    Proceed();
  }
  Turn turn;
  turn.step = now().version;
  turn.batch = ticket_->index;
  turn.loss_scale = ticket_->loss_scale;
  std::string name = absl::StrCat("the push for ticket ", ticket_->index);
  auto push = cluster_.StartPush(*std::exchange(ticket_, {}), now());
  return HandOut(std::move(turn), std::move(name), std::move(push));
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitLast(
    absl::Time until) {
  while (!underway_.empty()) {
    const absl::StatusOr<Progress> progress = FinishOldest(until);
    if (!progress.ok() || *progress == Progress::kLater) return progress;
  }
  BeginEnd();
  return Progress::kOn;
}

// ---- The end ----

void TrainingLoop::BeginEnd() { stage_ = Stage::kAwaitDone; }

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitDone(
    absl::Time until) {
  if (call_ == nullptr) {
    call_ = calls_.Start([&cluster = cluster_] {
      return cluster.AwaitDone(absl::InfiniteFuture());
    });
  }
  if (!call_->WaitUntilDone(until)) return Progress::kLater;
  HOLDFAST_RETURN_IF_ERROR(std::exchange(call_, nullptr)->status());
  const bool here = !mode_.asynchronous && mode_.exact_pulls &&
                    now().version == mode_.total_steps;
  stage_ = here ? Stage::kDone : Stage::kFinalValues;
  return Progress::kOn;
}

absl::StatusOr<TrainingLoop::Progress> TrainingLoop::AwaitFinalValues(
    absl::Time until) {
  if (call_ == nullptr) {
    // If a ps is lost now, nothing will restore its values.
    const absl::Time deadline = clock_.Now() + options_.margin;
    // The call may outlive the loop, so it never writes to the caller's memory.
    PullInto();
    final_values_ = options_.memory.empty()
                        ? std::shared_ptr<Parameters>(next_, &next_->values)
                        : std::make_shared<Parameters>();
    last_checkpoint_ = std::make_shared<Checkpoint>(NoCheckpoint());
    call_ =
        calls_.Start([&cluster = cluster_, end = final_values_, deadline,
                      hold = options_.pin_hold, checkpoint = last_checkpoint_,
                      read = options_.last_checkpoint] {
          const absl::Status status =
              ReadFinalValues(&cluster, hold, deadline, end.get());
          if (!status.ok() && read) *checkpoint = read();
          return status;
        });
  }
  if (!call_->WaitUntilDone(until)) return Progress::kLater;
  const absl::Status status = std::exchange(call_, nullptr)->status();
  if (!status.ok()) {
    TakeLastCheckpoint(
        *last_checkpoint_,
        absl::StrCat("the job is done, but its final values could not be read "
                     "from the ps (",
                     status.message(), ")"));
  } else {
    if (final_values_.get() != &next()) TakeFinalValues(*final_values_);
    Proceed();
  }
  final_values_.reset();
  stage_ = Stage::kDone;
  return Progress::kOn;
}

void TrainingLoop::TakeFinalValues(const Parameters& values) {
  Parameters& into = next();
  into.Resize(values.size());
  into.version = values.version;
  into.versions = values.versions;
  into.loss_scale = values.loss_scale;
  for (size_t i = 0; i < values.size(); ++i) {
    const absl::Span<const float> of = values.Of(i);
    std::copy(of.begin(), of.end(), into.Write(i, of.size()).begin());
  }
}

void TrainingLoop::TakeLastCheckpoint(const Checkpoint& from,
                                      const std::string& why) {
  if (!from.ok()) {
    values_status_ = absl::UnavailableError(
        absl::StrCat(why, "; ", from.status().message()));
    return;
  }
  LOG(INFO) << why << "; they are those of its last checkpoint";
  TakeFinalValues(**from);
  Proceed();
  from_checkpoint_ = true;
}

absl::Status TrainingLoop::Recover(const absl::Status& error) {
  Drop();
  if (cluster_.state().phase() == proto::DONE) {
    // This worker is a straggler: the job has ended without its last push, and
    // the shards may have ended before they answered.
    stage_ = Stage::kFinalValues;
    return absl::OkStatus();
  }
  const proto::JobState state = cluster_.state();
  if (state.phase() == proto::STOPPED) {
    return absl::AbortedError(state.reason());
  }
  if (!cluster_.rolled_back()) {
    if (state.phase() != proto::STOPPING || stage_ == Stage::kAwaitDone) {
      return error;
    }
    // What the loop waited for may never arrive, but the end of the job will.
    LOG(INFO) << "the job is stopping; dropped: " << error.message();
    stage_ = Stage::kAwaitDone;
    return absl::OkStatus();
  }
  ++counts_.roll_backs;
  if (options_.strict) return error;
  LOG(INFO) << "the job is rolled back: " << error.message();
  rolled_back_ = true;
  stage_ = Stage::kEnter;
  return absl::OkStatus();
}

void TrainingLoop::Drop() {
  underway_.clear();
  pull_.reset();
  row_pull_.reset();
  request_.reset();
  ticket_.reset();
  wait_ends_.reset();
  call_.reset();
  spent_ = false;
  pulled_ = false;
}

// ---- Parts of stages ----

template <typename Handle>
bool TrainingLoop::IsReady(Handle* handle, absl::Time until, uint64_t count) {
  if (!wait_ends_.has_value()) wait_ends_ = StepDeadline(count);
  return handle->WaitUntilDone(std::min(until, *wait_ends_)) ||
         clock_.Now() >= *wait_ends_;
}

absl::Time TrainingLoop::StepDeadline(uint64_t count) const {
  const proto::Timeouts& timeouts = cluster_.declaration().timeouts();
  return clock_.Now() + count * StepTimeout(timeouts) +
         RecoveryTimeout(timeouts) + options_.margin;
}

bool TrainingLoop::exchanges() const {
  if (mode_.asynchronous) {
    return mode_.pipeline_depth == 1 && !mode_.has_bound;
  }
  return !mode_.by_ticket && mode_.seats.size() == 1;
}

absl::Status TrainingLoop::OnOutcome(const Cluster::Outcome& outcome,
                                     const std::string& push) {
  counts_.verdict = outcome.verdict;
  counts_.staleness = outcome.staleness;
  switch (outcome.verdict) {
    case proto::ACCEPTED:
      ++counts_.accepted;
      return absl::OkStatus();
    case proto::STALE:
      ++counts_.stale;
      return absl::OkStatus();
    case proto::DUPLICATE:
      ++counts_.duplicate;
      return absl::OkStatus();
    case proto::FENCED:
      return absl::AbortedError(
          absl::StrCat(push,
                       " was fenced: the lease of this worker has expired, or "
                       "another process has taken over this task"));
    case proto::ABORTED: {
      const proto::JobState state = cluster_.state();
      return absl::AbortedError(
          state.phase() == proto::FAILED
              ? state.reason()
              : absl::StrCat(push, " was dropped: a ps has lost its state"));
    }
    default:
      return absl::InternalError(
          absl::StrCat(push, " got no verdict (",
                       proto::Verdict_Name(outcome.verdict), ")"));
  }
}

}  // namespace holdfast
