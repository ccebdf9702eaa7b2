// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/loop.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/c_api/connection.h"

namespace holdfast::c_api {

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
  TraceInput();
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
  Tell(**next, turn);
  if (tracer_ != nullptr) {
    const absl::Time now = tracer_->Now();
    tracer_->AddHere({TraceKind::kWait, "turn", since_, now});
    since_ = now;
    batch_ = (*next)->batch;
  }
  return Error();
}

void Loop::Tell(const TrainingLoop::Turn& from, holdfast_turn* turn) {
  *turn = {};
  turn->done = from.done;
  turn->rolled_back = from.rolled_back;
  turn->number = from.number;
  turn->batch = from.batch;
  turn->step = from.step.value();
  turn->seat = from.seat;
  turn->values = loop_->values_set();
  turn->loss_scale = from.done ? 0 : from.loss_scale;
}

Error Loop::Current(holdfast_turn* turn, int32_t* state) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  const std::optional<TrainingLoop::Turn> current = loop_->Current();
  *state = !current.has_value() ? HOLDFAST_TURN_NEXT
           : current->done      ? HOLDFAST_TURN_DONE
                                : HOLDFAST_TURN_HANDED_OUT;
  if (current.has_value()) Tell(*current, turn);
  return Error();
}

Error Loop::Restart() {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  return connection_->OfCall(loop_->Restart());
}

void Loop::TraceInput() {
  if (!input_since_.has_value()) return;
  tracer_->AddHere({TraceKind::kWait, "input", *input_since_, tracer_->Now()});
  input_since_.reset();
}

void Loop::TraceGradient() {
  if (tracer_ == nullptr) return;
  TraceInput();
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
  const auto found = loop_->ValuesAtFixedPlace();
  if (!found.ok()) return NoValues(found.status());
  if (Error error = CheckCount(values.size()); !error.ok()) return error;
  for (size_t i = 0; i < values.size(); ++i) values[i] = (*found)[i].data();
  return Error();
}

Error Loop::TakeValues(absl::Span<const float*> data,
                       std::shared_ptr<c_api::Values>* values) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  auto parameters = loop_->values();
  if (!parameters.ok()) return NoValues(parameters.status());
  if (data.data() != nullptr) {
    if (Error error = CheckCount(data.size()); !error.ok()) return error;
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = (*parameters)->Of(i).data();
    }
  }
  *values = std::make_shared<c_api::Values>(connection_->declared(),
                                            *std::move(parameters));
  return Error();
}

Error Loop::NoValues(const absl::Status& why) const {
  return Error(HOLDFAST_UNAVAILABLE, std::string(why.message()),
               connection_->ExitCodeWithoutValues());
}

Error Loop::Read(absl::Span<float* const> into,
                 absl::Span<const size_t> elements) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  const auto parameters = loop_->values();
  if (!parameters.ok()) return NoValues(parameters.status());
  if (Error error = CheckCount(into.size()); !error.ok()) return error;
  for (size_t i = 0; i < into.size(); ++i) {
    if (into[i] == nullptr) continue;
    if (Error error = (*connection_->variables())[i].CheckElements(elements[i]);
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

Error Loop::Input(bool waiting) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  if (waiting) connection_->TellsOfInput();
  loop_->WaitsForInput(waiting);
  TraceInput();
  if (waiting && tracer_ != nullptr) input_since_ = tracer_->Now();
  return Error();
}

Error Loop::Memory(size_t variable, float** memory) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  *memory = loop_->Memory(variable).data();
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
  const bool all_at_once = !loop_->has_handed_in();
  Error error;
  for (size_t i = 0; error.ok() && i < gradients.size(); ++i) {
    if (gradients[i] == nullptr) continue;
    error = AddLocked(i, {gradients[i], elements[i]});
  }
  if (error.ok()) {
    TraceGradient();
    error = connection_->OfCall(loop_->Contribute(gradient));
  }
  // The caller may correct its arguments and push again.
  if (!error.ok() && all_at_once) loop_->Restart().IgnoreError();
  return error;
}

Error Loop::ReadRows(absl::Span<const RowUse> rows,
                     absl::Span<const absl::Span<float>> into,
                     absl::Time until) {
  absl::MutexLock lock(&mutex_);
  TraceInput();
  if (loop_ == nullptr) return Closed();
  if (const auto values = loop_->values(); !values.ok()) {
    return NoValues(values.status());
  }
  absl::StatusOr<bool> here = false;
  const bool done = Connection::Wait(until, given_up_, [&](absl::Time slice) {
    mutex_.AssertHeld();
    if (loop_ == nullptr) return true;
    here = loop_->ReadRows(rows, into, slice);
    return !here.ok() || *here;
  });
  if (loop_ == nullptr || given_up_) return Closed();
  if (!here.ok() && loop_->from_checkpoint()) return NoValues(here.status());
  if (!here.ok()) return connection_->OfCall(here.status());
  return done ? Error() : connection_->NotYet();
}

Error Loop::WantRows(absl::Span<const RowUse> rows) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  return connection_->OfCall(loop_->WantRows(rows));
}

Error Loop::AddRows(const RowUse& rows, absl::Span<const float> gradients) {
  absl::MutexLock lock(&mutex_);
  if (loop_ == nullptr) return Closed();
  return connection_->OfCall(loop_->AddRows(rows.table, rows.ids, gradients));
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

}  // namespace holdfast::c_api
